"""Scores of one example at a time: against brute force, closed forms, and cases counted by hand."""

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy import stats

from ofmu_pl.metrics.per_example import CAP, DELTA, compared, epsilons, forgetting_score, null, u_lira


def brute_force(one, other):
    """Every decision rule one by one."""
    values = sorted({*one, *other})
    peaked, wide = (one, other) if np.ptp(one) < np.ptp(other) else (other, one)
    high, low = (other, one) if np.median(other) > np.median(one) else (one, other)
    rules = [(low, [x >= t for x in low], [x < t for x in high]) for t in [*values, math.inf]]
    rules += [
        (wide, [a <= x <= b for x in wide], [not a <= x <= b for x in peaked])
        for a, b in combinations_with_replacement(values, 2)
    ]
    best = 0.0
    for _, alarms, misses in rules:
        fpr, fnr = np.mean(alarms), np.mean(misses)
        if fpr == 0 and fnr == 0:
            return CAP
        if fpr > 0 and fnr > 0:
            for a, b in ((fpr, fnr), (fnr, fpr)):
                if 1 - DELTA - a > 0:
                    best = max(best, math.log(1 - DELTA - a) - math.log(b))
    return best


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0])
def test_epsilons_are_those_of_all_decisions(shift):
    rng = np.random.default_rng(int(shift))
    one, other = rng.normal(size=(12, 6)), rng.normal(shift, 1.5, size=(9, 6))
    expected = [brute_force(list(a), list(b)) for a, b in zip(one.T, other.T, strict=True)]
    np.testing.assert_allclose(epsilons(one, other), expected, rtol=1e-12)


def test_epsilon_by_hand():
    one, other = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([[3.5], [4.5], [5.0], [6.0]])
    # At or above 3.5: all of the larger side, 1 of 4 of the other: no misses, left out. At or above 4.5: 1 of 4 missed
    # and no alarm, left out. From 3.5 to 4: 3 of 4 missed, 1 of 4 alarms, and so on; the best is at 4 and above.
    assert epsilons(one, other)[0] == pytest.approx(math.log((1 - DELTA - 0.25) / 0.25))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], 0.0),
        ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], CAP),
        ([1.0, 1.001, 1.0], [0.0, 5.0, 2.0], CAP),  # hardly varies: told apart as a rule of the competition
        ([1.0, math.inf, 1.0], [0.0, 5.0, 2.0], CAP),
        ([0.0, 1.0, 2.0], [7.0, 8.0, 9.0], CAP),
    ],
)
def test_epsilons_at_the_ends(one, other, expected):
    assert epsilons(np.array(one)[:, None], np.array(other)[:, None])[0] == expected


def test_points_follow_the_released_buckets():
    """Their loop: buckets of a half from 0 while their end is within ceil(ln(N - 1)), each worth half of the last."""
    for models in (5, 16, 64, 512):
        most, start, points, buckets = np.ceil(np.log(models - 1)), 0.0, 1.0, {}
        while start + 0.5 <= most:
            buckets[start] = points
            points, start = points / 2, start + 0.5
        for e in np.arange(0, 8, 0.13):
            expected = next((p for s, p in buckets.items() if e < s + 0.5), 0.0)
            assert forgetting_score(np.array([e]), models) == expected, (models, e)


def test_lira_against_normals_fitted_one_by_one():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(1, 1, (7, 3)), rng.normal(0, 2, (6, 3))
    scores = {True: [], False: []}
    for own, other, positive in ((ours, theirs, True), (theirs, ours, False)):
        for i, e in np.ndindex(own.shape):
            rest = np.delete(own[:, e], i)
            here = stats.norm(rest.mean(), rest.std(ddof=1)).logpdf(own[i, e])
            there = stats.norm(other[:, e].mean(), other[:, e].std(ddof=1)).logpdf(own[i, e])
            scores[positive].append((here - there) * (1 if positive else -1))
    found = u_lira(ours, theirs)
    right = (np.mean(np.array(scores[True]) > 0) + np.mean(np.array(scores[False]) < 0)) / 2
    assert found["u_lira_accuracy"] == pytest.approx(right)
    pairs = [(p > n) + 0.5 * (p == n) for p in scores[True] for n in scores[False]]
    assert found["u_lira_auc"] == pytest.approx(np.mean(pairs))


def test_lira_finds_nothing_where_models_are_alike_and_all_where_they_are_not():
    rng = np.random.default_rng(1)
    alike = u_lira(*rng.normal(size=(2, 60, 30)))
    apart = u_lira(rng.normal(9, 1, (60, 30)), rng.normal(0, 1, (60, 30)))
    assert abs(alike["u_lira_auc"] - 0.5) < 0.03
    assert alike["u_lira_tpr_at_1_percent"] < 0.03
    assert apart["u_lira_auc"] > 0.9999
    assert apart["u_lira_tpr_at_1_percent"] > 0.999
    with pytest.raises(ValueError, match="U-LiRA"):
        u_lira(np.zeros((2, 1)), np.zeros((5, 1)))


def test_the_null_is_what_models_that_are_alike_have():
    """At 4 and 8 models, far from epsilon 0 and score 1: inside as often as 95 % say, or nearly."""
    rng = np.random.default_rng(0)
    for models, epsilon in ((4, 6.8), (8, 1.6)):
        inside = []
        for _ in range(4):
            sides = rng.normal(size=(2, models, 25))
            found, chance = compared(*sides), null(*sides)
            inside += [low <= found[name] <= high for name, (low, high) in chance.items()]
            assert chance["epsilon"][0] < epsilon < 1.5 * chance["epsilon"][1]
            assert chance["forgetting_score"][1] < 0.5
        assert 0.85 < np.mean(inside) <= 1.0
