"""Numbers and verdicts in plain words."""

import math

import pytest

from ofmu_pl.evaluation.plain import change, ends, shown, statements, verdict
from ofmu_pl.metrics.choice import UTILITY
from ofmu_pl.metrics.own_rows import LOSS
from ofmu_pl.metrics.result import Metric, by_name
from ofmu_pl.metrics.tofu import ATTACKS, MODEL_UTILITY
from ofmu_pl.metrics.tofu_items import KEPT_PROBABILITY, PROBABILITY, of_set
from ofmu_pl.metrics.vision import MIA, UA


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "0 to 1", "0 %"),
        (0.0004, "0 to 1", "less than 0.1 %"),
        (0.004, "0 to 1", "0.4 %"),
        (0.345, "0 to 1", "34 %"),
        (0.994, "0 to 1", "99.4 %"),
        (0.9904, "0 to 1", "99 %"),
        (0.9999, "0 to 1", "more than 99.9 %"),
        (1.0, "0 to 1", "100 %"),
        (-65.0, "%", "-65 %"),
        (2.5, "nats", "2.50 nats"),
        (0.0624, "nats", "0.062 nats"),
        (1e-12, "p-value", "1e-12"),
        (math.nan, "0 to 1", "no number"),
    ],
)
def test_numbers_have_their_unit_and_no_digits_that_say_nothing(value, unit, text):
    assert shown(value, Metric("x", True, unit)) == text


def test_an_interval_has_its_unit_once():
    assert ends(PROBABILITY.result(0.5, 9, interval=(0.4, 0.62))) == "40 to 62 %"
    assert ends(PROBABILITY.result(0.5, 9)) is None


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (ATTACKS["mia_loss"].result(0.52, 40, 0.5, interval=(0.47, 0.57)), "no difference"),
        (ATTACKS["mia_loss"].result(0.7, 40, 0.5, interval=(0.6, 0.8)), "more is left"),
        (ATTACKS["mia_loss"].result(0.0, 40, 0.5, interval=(0.0, 0.0)), "less is left"),
        (LOSS.result(2.0, 9, 1.0, interval=(1.5, 2.5)), "less is left"),
        (LOSS.result(0.5, 9, 1.0, interval=(0.4, 0.6)), "more is left"),
        (UA.result(3.0, 9, 20.0, interval=(1.0, 5.0)), "more is left"),
        (UTILITY.result(0.5, 9, 0.25, interval=(0.4, 0.6)), "above the goal"),
        (MIA.result(50.0, 9, 50.0), ""),
        (PROBABILITY.result(0.5, 9, interval=(0.4, 0.6)), ""),
        (PROBABILITY.result(math.nan, 9, 0.5, interval=(math.nan, math.nan)), ""),
    ],
)
def test_a_value_is_held_against_its_goal_by_its_interval(result, said):
    assert verdict(result) == said


@pytest.mark.parametrize(
    ("metric", "before", "said"),
    [
        (KEPT_PROBABILITY, 0.9, "worse"),
        (KEPT_PROBABILITY, 0.5, "better"),
        (KEPT_PROBABILITY, 0.7, "unchanged"),
        (LOSS.of("retain", "forget", group="kept", higher_is_better=False), 0.5, "worse"),
    ],
)
def test_a_change_within_the_interval_is_none(metric, before, said):
    assert change(metric.result(0.75, 9, interval=(0.65, 0.85)), metric.result(before, 9)) == said


def test_without_an_interval_nobody_calls_it_a_change(told):
    was, now = (by_name(KEPT_PROBABILITY.result(value, 9)) for value in (0.9, 0.1))
    ((kept,),) = statements(now, was, {}).values()
    assert kept.meaning == "Higher is better."
    assert "measures of what must stay" not in " ".join(told(before=was, after=now).summary)


def test_each_test_says_number_interval_goal_and_whose(told):
    found = statements(told().after, told().before, {})
    assert list(found) == [
        "Can an attacker tell what is forgotten from what was never seen?",
        "What does the model still know of it?",
        "What did it cost?",
    ]
    (attack,) = found["Can an attacker tell what is forgotten from what was never seen?"]
    assert attack.text.endswith("picks the forgotten one in 52 % (47 to 57 %) of cases; 50 % is chance.")
    assert (attack.before, attack.goal) == ("98 %", "50 % (chance)")
    assert attack.meaning == "No difference from the goal was found."
    loss, probability = found["What does the model still know of it?"]
    assert "what is avoided stands out" in loss.meaning
    assert probability.text.startswith(
        "On the forgotten rows, the model gives a word of the right answer a probability"
    )
    assert probability.goal == "31 % (held-out rows)"
    (kept,) = found["What did it cost?"]
    assert kept.text.startswith("On rows that must stay,")
    assert (kept.goal, kept.meaning) == (None, "It is worse than before.")


def test_sentences_tell_evaluation_sets_apart():
    sets = ("retain", "real_authors", "world_facts")
    after = by_name(*(of_set(KEPT_PROBABILITY, name).result(0.9, 30) for name in sets))
    (found,) = statements(after, {}, {}).values()
    assert [statement.text.partition(", the model")[0] for statement in found] == [
        "On rows that must stay",
        "On questions about real authors",
        "On questions about world facts",
    ]


def test_with_a_retrained_model_the_goal_is_its_value(told):
    retrained = {"forget_Q_A_Prob": PROBABILITY.result(0.31, 20)}
    found = statements(told().after, told().before, retrained)
    goals = {s.name: s.goal for group in found.values() for s in group}
    assert goals["forget_Q_A_Prob"] == "31 % (the retrained model)"


def test_the_summary_counts(told):
    first, attack, kept = told().summary
    assert first == (
        "Of 3 tests of what is forgotten, 2 found no difference from the goal, 1 found that less is left than there "
        "should be."
    )
    assert attack.startswith("The attack that finds most: shown a forgotten row")
    assert kept == ("Of 1 measures of what must stay, 1 became worse by more than its interval (retain_Q_A_Prob).")
    alone = told(after={"model_utility": MODEL_UTILITY.result(0.5, 9)}, before={})
    assert alone.summary == [
        "No test of what is forgotten has both a goal and an interval, so that none can be counted."
    ]
