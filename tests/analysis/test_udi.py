"""The index by hand, term by term, and correlations, against scipy's own."""

import math

import numpy as np
import pytest
from scipy import stats

from ofmu_pl.analysis import easiest_and_hardest, spearman, unlearning_difficulty
from ofmu_pl.support.errors import UserError

NORMS, SIMILARITIES, LOSSES = np.array([3.0, 1.0, 2.0]), np.array([1.0, 0.0, -0.5]), np.array([0.5, 2.0, 7.0])


def test_the_sum_of_three_terms():
    found = unlearning_difficulty(NORMS, SIMILARITIES, LOSSES, threshold=4.0)
    assert found.gradient_norm.tolist() == [3.0, 1.0, 2.0]
    assert found.conflict.tolist() == [0.0, 1.0, 1.5]
    assert found.margin.tolist() == [3.5, 2.0, 0.0], "a sample past the threshold has no way to go"
    assert found.value.tolist() == [6.5, 4.0, 3.5]
    assert found.value.dtype == np.float64


def test_broken_samples_are_counted():
    with pytest.raises(UserError, match=r"\b1 of 3\b"):
        unlearning_difficulty(NORMS, SIMILARITIES, np.array([0.5, np.nan, 7.0]), 4.0)


def test_thirds():
    easy, hard = easiest_and_hardest(np.array([5.0, 1.0, 4.0, 2.0, 3.0, 0.0, 9.0]))
    assert (easy.tolist(), hard.tolist()) == ([1, 5], [0, 6])
    easy, hard = easiest_and_hardest(np.array([1.0, 1.0]))
    assert (easy.tolist(), hard.tolist()) == ([0], [1])


def pairs(n=60, ties=False):
    rng = np.random.default_rng(3)
    x = rng.normal(size=n)
    y = 0.7 * x + rng.normal(size=n)
    return (np.round(x), np.round(y)) if ties else (x, y)


@pytest.mark.parametrize("ties", [False, True])
def test_value_and_interval_are_scipy_s(ties):
    x, y = pairs(ties=ties)
    found, theirs = spearman(x, y), stats.spearmanr(x, y)
    assert (found.value, found.p_value, found.n) == (theirs.statistic, theirs.pvalue, 60)
    bootstrap = stats.bootstrap(
        (x, y), lambda a, b: stats.spearmanr(a, b).statistic, paired=True, vectorized=False, method="percentile",
        n_resamples=1000, rng=0,
    )  # fmt: skip
    np.testing.assert_allclose(found.interval, bootstrap.confidence_interval, atol=0.03)


def test_three_pairs_show_nothing():
    assert spearman(np.arange(3), np.arange(3)).p_value == pytest.approx(1 / 3), "as one of 3! orders, or its reverse"


def test_ranks_alone_matter():
    x, y = pairs()
    found = spearman(x, y)
    assert spearman(np.exp(x), y**3) == found
    assert spearman(x, -y).value == pytest.approx(-found.value, abs=1e-15)


def test_what_does_not_vary_has_no_correlation():
    assert math.isnan(spearman(np.ones(5), np.arange(5)).value)
    for x, y in ((np.arange(2), np.arange(2)), (np.arange(4), np.arange(5))):
        with pytest.raises(UserError, match=rf"{len(x)}\D+{len(y)}"):
            spearman(x, y)
