"""Distances between three models, against their nulls."""

import json

import numpy as np
import pytest

from ofmu_pl.metrics.nearness import FLIPS, in_words, is_nearer, nearness, of_older
from ofmu_pl.metrics.result import MetricResult


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
    assert (found["forget_doc_nearer"].value, found["forget_doc_nearer"].target) == (0.5, 0.0)
    kept = nearness(*losses, "retain")
    assert kept.keys() == {"retain_distance"}
    assert list(in_words(kept, kept)) == [
        "On retained rows, losses are 0.5 nats from the retrained model's (before 0.5, a second retrained model 1)."
    ]
    assert nearness(np.zeros(2), np.ones(2)).keys() == {"forget_distance"}


def test_false_alarms_of_a_retrained_model_are_a_twentieth():
    rng = np.random.default_rng(0)
    beyond = 0
    for _ in range(400):
        ours, retrained, _, second = models(rng)
        beyond += value(nearness(ours, retrained, second=second), "beyond") < 0.05
    assert 0.025 <= beyond / 400 <= 0.08


def test_the_interval_of_the_share_holds_what_is_gone():
    """Of many rows 1 - E|u - r| / E|t - r| is the share, here of rows with normal distances."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        way = rng.normal(3, 1, 40)
        share = nearness(way * rng.normal(0.6, 0.1, 40), np.zeros(40), way)["forget_nearer"]
        held += share.interval[0] <= 0.4 <= share.interval[1]
    assert 0.92 <= held / 400 <= 0.98


@pytest.mark.parametrize(("moved", "far"), [(0.0, False), (1.0, True), (-1.0, True)])
def test_what_is_further_away_than_noise(moved, far):
    found = nearness(*models(np.random.default_rng(1), moved=moved))
    assert (value(found, "beyond") < 0.01) is far
    assert is_nearer(found["forget_nearer"])
    assert ("further than" in next(in_words(found, {}))) is far


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.02, 0.1])
def test_a_model_that_hardly_moved_is_not_nearer(noise):
    """A whole model moves as one, so every row may be nearer and the share still be of no size."""
    _, retrained, target, second = models(np.random.default_rng(2))
    for s in (None, second):
        found = nearness(target + noise, retrained, target, s)
        assert is_nearer(found["forget_nearer"]) is False
        assert "not shown to be nearer" in next(in_words(found, found))
    assert value(found, "beyond") == pytest.approx(1 / (1 + FLIPS)), "none of the patterns gives as much"


def test_a_second_retrained_model_says_how_much_counts():
    _, retrained, target, second = models(np.random.default_rng(4))
    ours = target + 0.08 * (retrained - target)
    alone, beside = (nearness(ours, retrained, target, s)["forget_nearer"] for s in (None, second))
    assert alone.value == beside.value == pytest.approx(0.08)
    assert 1 - beside.target == pytest.approx(np.abs(second - retrained).mean() / np.abs(target - retrained).mean())
    assert 0.08 < 1 - beside.target < 0.2
    assert (is_nearer(alone), is_nearer(beside)) == (True, False)
    whole = nearness(retrained, retrained, target, target - 9)["forget_nearer"]
    assert is_nearer(whole) is False, "two retrained models are further apart than the way is long"


@pytest.mark.parametrize(("level", "least", "most"), [(0.0, 0.02, 0.09), (1.0, 0.9, 1.0)])
def test_retrained_models_that_differ_as_wholes_are_told(level, least, most):
    rng, said = np.random.default_rng(6), 0
    for _ in range(200):
        ours, retrained, target, second = models(rng)
        found = nearness(ours, retrained, target, second + level * rng.choice([-1, 1]))
        said += "differ by more than rows explain" in " ".join(in_words(found, found))
    assert least <= said / 200 <= most


def test_four_rows_decide_nothing():
    found = nearness(*models(np.random.default_rng(3), n=4, moved=9.0))
    assert is_nearer(found["forget_nearer"]) is None
    assert "(p = " not in next(in_words(found, found))


def test_no_number_is_no_evidence():
    found = nearness(np.array([np.nan] * 9), np.zeros(9), np.ones(9), np.zeros(9))
    assert np.isnan([value(found, "nearer"), value(found, "beyond")]).all()
    assert is_nearer(found["forget_nearer"]) is None
    assert not [words for words in in_words(found, found) if "nearer" in words or "p =" in words]
    assert "forget_nearer" not in nearness(np.ones(9), np.zeros(9), np.zeros(9)), "there is no way"


def test_p_values_of_older_files_are_read_as_shares():
    now, before = (nearness(*x) for x in (models(np.random.default_rng(5)), models(np.random.default_rng(5))[2:0:-1]))
    stored, was = (json.loads(json.dumps({k: r.as_dict() for k, r in x.items()})) for x in (now, before))
    assert of_older(stored, was) == stored
    old = stored | {"forget_nearer": {"value": 5e-4, "n": 40, "unit": "p-value", "higher_is_better": False}}
    share = MetricResult.from_dict("forget_nearer", of_older(old, was)["forget_nearer"])
    assert (share.value, share.target) == pytest.approx((now["forget_nearer"].value, now["forget_nearer"].target))
    assert is_nearer(share) is None, "a file has no values of rows"
    assert "forget_nearer" not in of_older(old, {}), "nothing is known of the way"
