"""Numbers and verdicts in plain words."""

import math
import re

import numpy as np
import pytest

from ofmu_pl.evaluation.plain import ends, shown
from ofmu_pl.metrics.choice import UTILITY
from ofmu_pl.metrics.membership import auc_result
from ofmu_pl.metrics.own_rows import LOSS
from ofmu_pl.metrics.result import Metric, by_name
from ofmu_pl.metrics.tofu import ATTACKS, MODEL_UTILITY
from ofmu_pl.metrics.tofu_items import KEPT_PROBABILITY, PROBABILITY
from ofmu_pl.metrics.verdicts import changes, verdicts
from ofmu_pl.metrics.vision import MIA, UA
from scripts.nulls import wrong_pages
from tests.helpers.accounts import rows


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "0 to 1", "0 %"),
        (0.0004, "0 to 1", "less than 0.1 %"),
        (0.004, "0 to 1", "0.4 %"),
        (0.994, "0 to 1", "99.4 %"),
        (0.9999, "0 to 1", "more than 99.9 %"),
        (1.0, "0 to 1", "100 %"),
        (-65.0, "%", "-65 %"),
        (0.0624, "nats", "0.062 nats"),
        (1e-12, "p-value", "1e-12"),
        (math.nan, "0 to 1", "no number"),
    ],
)
def test_numbers_have_their_unit_and_no_digits_that_say_nothing(value, unit, text):
    assert shown(value, Metric("x", True, unit)) == text
    assert ends(PROBABILITY.result(0.5, 9, interval=(0.4, 0.62))) == "40 to 62 %"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (rows(ATTACKS["mia_loss"], 0.52, 0.2, 40, 0.5), "no difference"),
        (rows(ATTACKS["mia_loss"], 0.7, 0.2, 40, 0.5), "more is left"),
        (ATTACKS["mia_loss"].of_items(np.zeros(20), 0.5), "less is left"),
        (rows(LOSS, 2.0, 0.5, 20, 1.0), "less is left"),
        (rows(LOSS, 0.5, 0.5, 20, 1.0), "more is left"),
        (rows(UA, 3.0, 5.0, 20, 20.0), "more is left"),
        (rows(UTILITY, 0.5, 0.2, 20, 0.25), "above the goal"),
        (ATTACKS["mia_loss"].of_items(np.zeros(5), 0.5), "too few"),
        (LOSS.of_items(np.zeros(1), np.ones(30), same_items=False), "too few"),
    ],
)
def test_a_value_is_held_against_its_goal(result, said):
    assert verdicts(by_name(result)) == {result.metric.name: said}


@pytest.mark.parametrize(
    "result",
    [
        MIA.result(50.0, 9, 50.0),
        rows(PROBABILITY, 0.5, 0.1, 20),
        PROBABILITY.of_items(np.array([math.nan] * 9), 0.5),
        PROBABILITY.result(0.5, 9, 0.3, interval=(0.4, 0.6)),
    ],
)
def test_nothing_is_said_without_a_goal_or_the_values_of_rows(result):
    assert verdicts(by_name(result)) == {}


def test_an_attack_that_could_not_reject_says_nothing():
    """One row, and three, at an AUC of 1."""
    for n in (1, 3):
        result = auc_result(ATTACKS["mia_loss"], (np.arange(float(n)), np.arange(10.0, 10.0 + n)), 0.5)
        assert (result.value, verdicts(by_name(result))) == (1.0, {"mia_loss": "too few"})
    found = auc_result(ATTACKS["mia_loss"], (np.arange(9.0), np.arange(10.0, 19.0)), 0.5)
    assert verdicts(by_name(found)) == {"mia_loss": "more is left"}


def test_the_goals_own_rows_vary_too():
    """Against the retrained model's values of the same rows, not against their mean."""
    rng = np.random.default_rng(0)
    hard = rng.normal(size=40)
    ours, goal = hard + rng.normal(0.2, 0.1, 40), hard
    assert verdicts(by_name(LOSS.of_items(ours, goal))) == {"forget_loss": "less is left"}
    assert verdicts(by_name(LOSS.of_items(ours, goal, same_items=False))) == {"forget_loss": "no difference"}
    far = float(hard.mean() - 0.33)
    assert verdicts(by_name(LOSS.of_items(hard, far)))["forget_loss"] == "less is left", "a goal without noise"
    assert verdicts(by_name(LOSS.of_items(hard, rng.permutation(hard) - 0.33))) == {"forget_loss": "no difference"}


def test_verdicts_of_nothing_are_false_in_a_twentieth_of_pages():
    assert 0.01 <= wrong_pages(200) / 200 <= 0.08


@pytest.mark.parametrize(
    ("metric", "before", "said"),
    [
        (KEPT_PROBABILITY, 0.9, "worse"),
        (KEPT_PROBABILITY, 0.5, "better"),
        (LOSS.of("retain", "forget", group="kept", higher_is_better=False), 0.5, "worse"),
    ],
)
def test_a_change_is_that_of_the_same_rows(metric, before, said):
    name, noise = metric.name, 0.2 * np.random.default_rng(0).normal(size=20)
    now = {name: rows(metric, 0.75, 0.2, 20)}
    (was,) = now[name].items
    assert changes(now, {name: metric.of_items(was + before - 0.75 + noise)}) == {name: said}
    assert changes(now, {name: metric.of_items(was + noise - noise.mean())}) == {name: "unchanged"}
    assert changes({name: metric.of_items(was[:3])}, {name: metric.of_items(was[:3] + 9)}) == {name: "too few"}


def test_a_change_of_a_tasks_figures_is_told_by_their_intervals():
    task = Metric("task_x_acc", higher_is_better=True, group="kept")
    now = by_name(task.result(0.5, 99, interval=(0.4, 0.6)))
    assert changes(now, by_name(task.result(0.6, 99, interval=(0.5, 0.7)))) == {"task_x_acc": "unchanged"}
    assert changes(now, by_name(task.result(0.7, 99, interval=(0.6, 0.8)))) == {"task_x_acc": "worse"}
    assert changes(now, by_name(task.result(0.7, 99))) == {}


def test_the_summary_counts(told):
    first, attack, kept = told().summary
    assert re.match("Of 3 .* 2 .*difference.* 1 .*less", first)
    assert "shown" in attack
    assert re.search(r"worse: retain_Q_A_Prob from 95 % to 90 %", kept)
    (alone,) = told(after={"model_utility": MODEL_UTILITY.result(0.5, 9)}, before={}).summary
    assert "goal" in alone


@pytest.mark.parametrize(
    ("auc", "kept", "said"),
    [
        (0.9, 0.5, "left, and .* worse"),
        (0.1, 0.9, "avoided, .* no harm"),
        (0.5, 0.5, "No test tells .* worse"),
        (None, 0.9, "Nothing could be tested .* no harm"),
    ],
)
def test_the_headline_says_what_was_found_and_what_it_cost(auc, kept, said, told):
    before = by_name(rows(ATTACKS["mia_loss"], 0.99, 0.05, 40, 0.5), rows(KEPT_PROBABILITY, 0.9, 0.2, 40))
    after = by_name(rows(KEPT_PROBABILITY, kept, 0.2, 40))
    after |= {} if auc is None else by_name(rows(ATTACKS["mia_loss"], auc, 0.2, 40, 0.5))
    assert re.search(said, told(before=before, after=after).headline)


def test_a_test_that_passes_before_is_no_headline(told):
    """As of a class that is compared with itself: its AUC is 0.5 before and after."""
    attack = by_name(rows(ATTACKS["mia_loss"], 0.52, 0.2, 40, 0.5))
    said = told(before=attack, after=attack).summary
    assert not said[0].startswith("Of ")
    assert re.search(r"\b1 .*before", said[1])
    harmed = by_name(rows(ATTACKS["mia_loss"], 0.1, 0.2, 40, 0.5))
    (first, *_) = told(before=attack, after=harmed).summary
    assert first.startswith("Of 1 ")
    assert "less" in first
