"""Spearman's correlation and its interval, against scipy's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ofmu_pl.analysis import spearman
from ofmu_pl.support.errors import UserError


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


def test_ranks_alone_matter():
    x, y = pairs()
    found = spearman(x, y)
    assert spearman(np.exp(x), y**3) == found
    assert spearman(x, -y).value == pytest.approx(-found.value, abs=1e-15)


def test_what_does_not_vary_has_no_correlation():
    assert math.isnan(spearman(np.ones(5), np.arange(5)).value)
    for x, y in ((np.arange(2), np.arange(2)), (np.arange(4), np.arange(5))):
        with pytest.raises(UserError, match="three pairs or more"):
            spearman(x, y)
