"""What results say is kept in their entries, and is no guess from their names."""

import json

import numpy as np
import pytest

from ofmu_pl.evaluation.plain import statements
from ofmu_pl.metrics.own_rows import LOSS
from ofmu_pl.metrics.result import Metric, MetricResult, by_name
from ofmu_pl.metrics.tofu_items import KEPT_PROBABILITY, of_set
from ofmu_pl.metrics.verdicts import verdicts, with_verdicts
from tests.helpers.accounts import rows


def both():
    """What is forgotten and what is kept, before a run and after it."""
    kept = rows(KEPT_PROBABILITY, 0.9, 0.05, 40)
    (values,) = kept.items
    now = KEPT_PROBABILITY.of_items(values - 0.02 - 0.001 * np.arange(40))
    return by_name(rows(LOSS, 0.1, 0.1, 40, 1.0), kept), by_name(rows(LOSS, 2.0, 0.5, 40, 1.0), now)


def stored(results, *without):
    """Results as a file has them, without some entries."""
    found = {}
    for name, result in results.items():
        entry = json.loads(json.dumps(result.as_dict()))
        found[name] = MetricResult.from_dict(name, {key: x for key, x in entry.items() if key not in without})
    return found


def test_what_was_judged_is_read_again_and_not_judged_anew():
    before, after = both()
    judged = with_verdicts(after, before)
    assert [(r.verdict, r.change) for r in judged.values()] == [("less is left", None), (None, "worse")]
    assert stored(judged) == judged == with_verdicts(stored(judged), stored(before))


def test_an_older_file_is_judged_by_what_it_has():
    before, after = both()
    old = with_verdicts(stored(after, "verdict", "change"), stored(before))
    assert old["forget_loss"].verdict is None, "a file has no values of rows"
    assert old["retain_Q_A_Prob"].change == "worse", "its intervals part"
    assert not {"verdict", "change"} & after["forget_loss"].as_dict().keys(), "what was not judged has no entry"


def said(metric, retrained):
    """Sentence and goal of a metric whose goal is 0.5."""
    result = by_name(rows(metric, 0.7, 0.1, 20, 0.5))
    ((statement,),) = statements(with_verdicts(result, {}), {}, result if retrained else {}).values()
    return statement.text, statement.goal


def test_names_decide_nothing():
    own = {"higher_is_better": False, "says": "On {rows}: {value}."}
    assert said(Metric("my_AUC", group="forgotten", **own), retrained=True)[1] == "50 % (the retrained model)"
    assert said(Metric("any", group="forgotten", chance=True, **own), retrained=True)[1] == "50 % (chance)"
    assert "stay" in said(Metric("wf_own", group="kept", **own), retrained=False)[0]
    assert "world" in said(of_set(KEPT_PROBABILITY, "world_facts"), retrained=False)[0]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("apart", "says"), [(0.0, True), (0.1, True), (0.28, False), (5.0, False)])
def test_what_a_second_retrained_model_differs_by_is_no_finding(apart, says, sign):
    """The difference is .3 nats, and certain to .03."""
    result = LOSS.of_items(2 + sign * 0.3 + 0.15 * np.linspace(-1, 1, 40), np.full(40, 2.0))
    second = LOSS.result(2 - apart, 40)
    found = "less is left" if sign > 0 else "more is left"
    assert verdicts({"x": result}) == {"x": found}
    assert verdicts({"x": result.beside(second)}) == {"x": found if says else "no difference"}
    assert result.beside(second).as_dict()["apart"] == pytest.approx(apart)
    (read,) = stored({"x": result.beside(second)}).values()
    assert read.apart == pytest.approx(apart)


def test_chance_is_no_goal_that_retrained_models_set():
    result = Metric("accuracy", higher_is_better=False, chance=True).of_items(np.ones(9), 0.25)
    assert result.beside(result).apart is None
    assert LOSS.result(1.0, 9).beside(LOSS.result(2.0, 9)).apart is None, "there is no goal"
