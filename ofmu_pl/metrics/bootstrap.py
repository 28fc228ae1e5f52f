"""Percentile intervals by resampling items: how much a metric would vary with other items of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

Array = np.ndarray
RESAMPLES = 1000
COVERAGE = 0.95


def interval(
    groups: Sequence[Array], statistic: Callable[..., Array] = lambda means: means[..., 0], seed: int = 0
) -> tuple[float, float]:
    """Compute the interval of a function of means over resampled items.

    Args:
        groups: Arrays of P values of N items, (N, P) or (N,). A group's values are drawn together, groups
            independently.
        statistic: Maps the (R, sum P) means of R resamples to (R,) values; by default the first mean.
        seed: Seed of the draws.

    Returns:
        The ends of the 95 % interval; NaN if a value is. One item alone gives an interval of width 0.

    >>> low, high = interval([np.array([0.0, 1.0] * 50)])
    >>> bool(0.38 <= low <= 0.42 and 0.58 <= high <= 0.62)
    True
    """
    columns = [np.asarray(group, dtype=np.float64).reshape(len(group), -1) for group in groups]
    draws = _draws(tuple(map(len, groups)), seed)
    means = [drawn @ values / len(values) for drawn, values in zip(draws, columns, strict=True)]
    low, high = np.quantile(statistic(np.concatenate(means, axis=1)), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


@lru_cache(maxsize=4)
def _draws(sizes: tuple[int, ...], seed: int) -> list[Array]:
    """How often each item of each group is in each resample, (R, N) a group; most metrics are of as many items."""
    rng = np.random.default_rng(seed)
    return [rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64) for n in sizes]
