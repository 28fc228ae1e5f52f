"""Rank correlation with an interval (paper: the Spearman correlation of UDI with the drop in utility)."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ofmu_pl.metrics.bootstrap import COVERAGE, RESAMPLES
from ofmu_pl.support.errors import UserError


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation.

    Attributes:
        value: From -1 to 1 (the paper writes tau, which usually means Kendall's; its text says Spearman).
        n: Number of pairs.
        p_value: Two-sided p-value of no correlation.
        interval: 95 % percentile bootstrap interval over pairs; resamples that do not vary are left out.
    """

    value: float
    n: int
    p_value: float
    interval: tuple[float, float]


def spearman(x: np.ndarray, y: np.ndarray, seed: int = 0) -> Correlation:
    """Compute Spearman's correlation, ties at their mean rank; NaN if one side does not vary.

    >>> found = spearman(np.arange(9.0), np.exp(np.arange(9.0)))
    >>> found.value, found.interval
    (1.0, (1.0, 1.0))
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.shape != y.shape or len(x) < 3:
        raise UserError(f"A correlation needs three pairs or more, not {len(x)} and {len(y)} values: give more.")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(float("nan"), len(x), float("nan"), (float("nan"), float("nan")))
    found = stats.spearmanr(x, y)
    draws = np.random.default_rng(seed).integers(len(x), size=(RESAMPLES, len(x)))
    a, b = (stats.rankdata(values[draws], axis=1) for values in (x, y))  # ranked anew in each resample
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    spread = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    values = (a * b).sum(axis=1)[spread > 0] / spread[spread > 0]  # a resample of one pair alone has no correlation
    low, high = np.clip(np.quantile(values, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2]), -1.0, 1.0)
    p = max(float(found.pvalue), 2 / math.factorial(len(x)))  # the least of a permutation test
    return Correlation(float(found.statistic), len(x), p, (float(low), float(high)))
