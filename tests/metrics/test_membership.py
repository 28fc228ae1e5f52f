"""Membership attacks against brute force."""

import math

import numpy as np
import pytest
from scipy import stats

from ofmu_pl.metrics import auc, membership_closeness, min_k, privacy_leakage
from ofmu_pl.metrics.membership import auc_interval

RNG = np.random.default_rng(0)


def test_auc_counts_pairs_and_halves_ties():
    member, stranger = RNG.integers(0, 5, 40).astype(float), RNG.integers(1, 7, 30).astype(float)
    pairs = [(s > m) + 0.5 * (s == m) for m in member for s in stranger]
    assert auc(member, stranger) == pytest.approx(np.mean(pairs), rel=1e-12)
    assert auc(member, member) == 0.5
    assert (auc(np.zeros(3), np.ones(2)), auc(np.ones(3), np.zeros(2))) == (1.0, 0.0)


def test_auc_of_one_item_of_none_and_of_nan():
    assert auc(np.array([1.0]), np.array([2.0])) == 1.0
    assert math.isnan(auc(np.array([]), np.array([2.0])))
    assert math.isnan(auc(np.array([1.0, math.nan]), np.array([2.0])))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_min_k_is_the_mean_of_the_lowest(n):
    x = RNG.normal(size=n)
    assert min_k(x) == pytest.approx(-np.mean(sorted(x)[: max(1, int(0.4 * n))]), rel=1e-12)
    assert min_k(np.array([])) == 0.0


def test_privacy_leakage_and_closeness():
    assert privacy_leakage(0.7, 0.7) == 0.0
    assert privacy_leakage(1.0, 0.5) == -100.0
    assert privacy_leakage(0.25, 0.5) == 50.0
    assert math.isnan(privacy_leakage(0.9, 1.0))
    assert membership_closeness(0.6, 0.6) == 1.0
    assert membership_closeness(1.0, 0.5) == 0.0
    assert membership_closeness(0.9, 0.6) == pytest.approx(0.5)


def test_the_interval_of_an_auc_at_its_ends_and_of_nan():
    low, high = auc_interval(np.zeros(5), np.ones(5))
    assert (low, high) == pytest.approx(stats.binomtest(5, 5).proportion_ci(method="wilson"))
    assert auc_interval(np.zeros(1), np.ones(40))[0] < 0.5, "one row shows nothing"
    assert all(map(math.isnan, auc_interval(np.array([math.nan]), np.ones(5))))
