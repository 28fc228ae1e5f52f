"""Bootstrap intervals against the normal theory of means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ofmu_pl.metrics import interval


def test_interval_of_a_mean_is_that_of_the_normal_theory():
    x = np.random.default_rng(0).normal(3, 2, 2000)
    low, high = interval([x])
    half = 1.96 * x.std() / math.sqrt(len(x))
    assert (low, high) == pytest.approx((x.mean() - half, x.mean() + half), abs=0.1 * half)


def test_items_of_a_group_are_drawn_together():
    x = np.random.default_rng(0).normal(size=200)
    assert interval([np.column_stack([x, -x])], lambda m: m.sum(axis=1)) == pytest.approx((0, 0), abs=1e-12)
    apart = interval([x, -x], lambda m: m.sum(axis=1))
    assert apart[1] - apart[0] > 0.1


def test_a_function_of_means_of_several_groups():
    rng = np.random.default_rng(0)
    groups = [rng.uniform(0.2, 1, (100, 3)), rng.uniform(0.2, 1, (50, 2))]
    value = stats.hmean(np.concatenate([g.mean(0) for g in groups]))
    low, high = interval(groups, lambda m: stats.hmean(m, axis=1))
    assert low < value < high
    assert interval(groups, lambda m: stats.hmean(m, axis=1)) == (low, high), "seeded"


def test_one_item_and_nan():
    assert interval([np.array([0.3])]) == (0.3, 0.3)
    assert all(map(math.isnan, interval([np.array([0.3, math.nan])])))
