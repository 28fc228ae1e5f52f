"""Distances between three models, against their nulls."""

import numpy as np
import pytest

from ofmu_pl.metrics.nearness import FLIPS, WORDS, in_words, nearness


def models(rng, n=40, moved=0.0):
    """Losses of a model that is moved, of a retrained one, of a target 3 nats away, and of a second retrained one."""
    hard = rng.normal(3, 1, n)
    ours, retrained, second = hard + rng.normal(0, 0.3, (3, n))
    return ours + moved, retrained, hard - 3, second


def value(found, name):
    return found[f"forget_{name}"].value


def test_distances_are_means():
    losses = np.array([1.0, 2.0]), np.array([1.0, 1.0]), np.array([0.0, 0.0]), np.array([3.0, 1.0])
    found = nearness(*losses, "forget_doc")
    assert (found["forget_doc_distance"].value, found["forget_doc_distance"].target) == (0.5, 1.0)
    assert (found["forget_doc_nearer"].metric.tested_as, found["forget_doc_nearer"].n) == ("forget_doc_distance", 2)
    kept = nearness(*losses, "retain")
    assert kept.keys() == {"retain_distance"}
    assert list(in_words(kept, kept)) == [
        "On retained rows, losses are 0.5 nats from the retrained model's (before 0.5, a second retrained model 1)."
    ]
    assert nearness(np.zeros(2), np.ones(2)).keys() == {"forget_distance"}


def test_false_alarms_are_a_twentieth():
    """Of a model that is retrained once more, and of a target that was never nearer."""
    rng = np.random.default_rng(0)
    beyond, nearer = 0, 0
    for _ in range(400):
        ours, retrained, _, second = models(rng)
        beyond += value(nearness(ours, retrained, second=second), "beyond") < 0.05
        nearer += value(nearness(ours, retrained, second), "nearer") < 0.05
    for share in (beyond / 400, nearer / 400):
        assert 0.025 <= share <= 0.08


@pytest.mark.parametrize(("moved", "far"), [(0.0, False), (1.0, True), (-1.0, True)])
def test_what_is_further_away_than_noise(moved, far):
    found = nearness(*models(np.random.default_rng(1), moved=moved))
    assert (value(found, "beyond") < 0.01) is far
    assert value(found, "nearer") == pytest.approx(1 / (1 + FLIPS)), "none of the patterns gives as much"
    (said,) = in_words(found, {})
    for test, differs in (("nearer", True), ("beyond", far)):
        shown, not_shown = WORDS[test]
        assert (shown in said.replace(not_shown, ""), not_shown in said) == (differs, not differs)


def test_a_model_that_did_not_move_is_not_nearer():
    _, retrained, target, second = models(np.random.default_rng(2))
    found = nearness(target, retrained, target, second)
    assert value(found, "nearer") == 1.0
    assert value(found, "beyond") < 0.001
    assert WORDS["nearer"][1] in next(in_words(found, {}))


def test_four_rows_decide_nothing():
    found = nearness(*models(np.random.default_rng(3), n=4, moved=9.0))
    assert "(p = " not in next(in_words(found, found))


def test_no_number_is_no_evidence():
    found = nearness(np.array([np.nan] * 9), np.zeros(9), np.ones(9), np.zeros(9))
    assert np.isnan([value(found, "nearer"), value(found, "beyond")]).all()
    assert not [words for words in in_words(found, found) if "p =" in words]
