"""Intervals of means over items, and tests of their differences: how much a metric would vary with other items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import stats

Array = np.ndarray
RESAMPLES = 1000
FEW = 10
"""Items of a group below which resamples say less than the t distribution."""
COVERAGE = 0.95
LEVEL = 0.05
"""Level of tests, of a whole family of them after ``holm``."""


def interval(groups: Sequence[Array], seed: int = 0) -> tuple[float, float]:
    """Compute the 95 % interval of a sum of means over items.

    It is the bootstrap-t interval: with m* and e* the sum and its standard error in a resample,

        [m - e q_97.5, m - e q_2.5],    q: quantiles of (m* - m) / e*

    which also holds for skewed values, where percentiles of m* are too narrow (Efron & Tibshirani 1993, section 12.5).
    Fewer than ten items have the t interval; one group of nothing but 0 and 1 is a share and has Wilson's (``wilson``).

    Args:
        groups: Values of items, (N,) each; resamples are drawn from each group independently.
        seed: Seed of the draws.

    Returns:
        The ends; NaN if a value is. One item alone, or equal items, give an interval of width 0.

    >>> low, high = interval([np.array([0.0, 1.0] * 50)])
    >>> round(low, 3), round(high, 3)
    (0.404, 0.596)
    """
    columns = [np.asarray(group, dtype=np.float64) for group in groups]
    if len(columns) == 1 and np.isin(columns[0], (0.0, 1.0)).all():
        return wilson(float(columns[0].mean()), len(columns[0]))
    value = sum(float(x.mean()) for x in columns)
    error = math.sqrt(sum(x.var() / max(1, len(x) - 1) for x in columns))
    if not error > 1e-12 * abs(value):
        return (value, value) if math.isfinite(error) else (math.nan, math.nan)
    if (least := min(map(len, columns))) < FEW:
        half = error * float(stats.t.ppf((1 + COVERAGE) / 2, least - 1))
        return value - half, value + half
    centred = [x - x.mean() for x in columns]
    drawn = list(zip(_draws(tuple(map(len, columns)), seed), centred, strict=True))
    means = [times @ x / len(x) for times, x in drawn]
    squares = [(times @ x**2 / len(x) - m**2) / max(1, len(x) - 1) for m, (times, x) in zip(means, drawn, strict=True)]
    errors = np.sqrt(np.maximum(sum(squares), 0.0))
    varied = errors > 1e-6 * error  # a resample of one item over and over has no t
    low, high = np.quantile(sum(means)[varied] / errors[varied], [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(value - error * high), float(value - error * low)


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of n items, which need not be a whole number.

    >>> low, high = wilson(0.0, 40)
    >>> low, round(high, 3)
    (0.0, 0.088)
    """
    z2 = float(stats.norm.ppf((1 + COVERAGE) / 2)) ** 2
    middle, half = share + z2 / (2 * n), math.sqrt(z2 * (share * (1 - share) + z2 / (4 * n)) / n)
    return max(0.0, (middle - half) / (1 + z2 / n)), min(1.0, (middle + half) / (1 + z2 / n))


@lru_cache(maxsize=4)
def _draws(sizes: tuple[int, ...], seed: int) -> list[Array]:
    """How often each item of each group is in each resample, (R, N) a group; most metrics are of as many items."""
    rng = np.random.default_rng(seed)
    return [rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64) for n in sizes]
