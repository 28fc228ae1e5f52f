"""Traces: nothing in equal or exchangeable answers, all of a habit, and two retrained models as the control."""

from dataclasses import replace

import numpy as np
import pytest

from ofmu_pl import Traces
from ofmu_pl.attacks.traces import told_apart
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records.models import SECOND


def pairs(rng, n=10, habit=""):
    """Answers of two models that differ by chance, and one by a habit as well."""
    ours, theirs = ([" ".join(rng.choice(list("abcdefghij"), 6)) for _ in range(n)] for _ in range(2))
    return [text + habit for text in ours] + theirs


def test_a_habit_is_found_and_equal_answers_tell_nothing():
    rng = np.random.default_rng(0)
    right, null, differ = told_apart(pairs(rng, habit=" indeed"))
    assert right.tolist() == [1.0] * 10
    assert 0.5 < null < differ == 1.0
    same = pairs(rng)[:10]
    right, *others = told_apart(same + same)
    assert (right.tolist(), others) == ([0.5] * 10, [0.5, 0.0])
    assert told_apart(same + [""] * 10)[2] == 1.0


def test_which_model_comes_first_changes_nothing():
    texts = pairs(np.random.default_rng(1))
    assert told_apart(texts)[0].tolist() == told_apart(texts[10:] + texts[:10])[0].tolist()


@pytest.mark.slow
def test_false_alarms_are_few():
    rng = np.random.default_rng(2)
    alarms = [right.mean() > null for right, null, _ in (told_apart(pairs(rng)) for _ in range(20))]
    assert sum(alarms) <= 3


def test_the_control_is_a_second_retrained_model(subjects):
    attack = Traces(max_new_tokens=8)
    subject = subjects["retrained"]
    assert attack.run(subject, 0).figures == {"traces_auc": 0.5}, "a model cannot be told from itself"
    others = {**subject.others, SECOND: subject.others["target"]}
    control = attack.run(replace(subject, others=others), 0)
    assert control.figures.keys() == {"traces_auc", "traces_null", "traces_differ"}
    assert control.figures["traces_auc"] == attack.run(subjects["target"], 0).figures["traces_auc"]
    with pytest.raises(UserError, match="retrained"):
        attack.run(replace(subject, others={}), 0)
