"""Intervals of means over items, and tests of their differences: how much a metric would vary with other items."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import special, stats

Array = np.ndarray
RESAMPLES = 1000
FEW = 10  # items of a group below which resamples say less than the t distribution
COVERAGE = 0.95
LEVEL = 0.05  # level of tests, of a whole family of them after `holm`


def interval(groups: Sequence[Array], seed: int = 0, *, bounded: bool = False) -> tuple[float, float]:
    """Compute the 95 % interval of a sum of means over items.

    It is the bootstrap-t interval: with m* and e* the sum and its standard error in a resample,

        [m - e q_97.5, m - e q_2.5],    q: quantiles of (m* - m) / e*

    which also holds for skewed values, where percentiles of m* are too narrow (Efron & Tibshirani 1993, section 12.5).
    Fewer than ten items have the t interval, where they are bounded that of the log-odds, ln(m / (1 - m)): near 0 and 1
    the far side is the one that a plain interval misses. Items of which a few make all the difference have the t
    interval, too, as resamples without these have hardly any e*; where they are bounded Wilson's takes its place, of as
    many as give a share the variance of the sum. One group of nothing but 0 and 1 has Wilson's (``wilson``).

    Args:
        groups: Values of items, (N,) each; resamples are drawn from each group independently.
        seed: Seed of the draws.
        bounded: Whether the sum lies between 0 and 1, and so do the ends.

    Returns:
        The ends; NaN if a value is not finite or a group has no items. One item alone, or equal items, give an interval
        of width 0. Among several groups, one of a single item is taken to vary as the others do.

    >>> low, high = interval([np.array([0.0, 1.0] * 50)])
    >>> round(low, 3), round(high, 3)
    (0.404, 0.596)
    """
    columns = [np.asarray(group, dtype=np.float64) for group in groups]
    if not all(map(len, columns)):
        return math.nan, math.nan
    if len(columns) == 1 and np.isin(columns[0], (0.0, 1.0)).all():
        return wilson(float(columns[0].mean()), len(columns[0]))
    value = sum(float(x.mean()) for x in columns)
    if not math.isfinite(value):
        return math.nan, math.nan
    error = math.sqrt(sum(_squared_errors(columns)))
    if error <= 1e-12 * abs(value):
        return value, value
    least = min(map(len, columns))
    found = None if least < FEW else _bootstrap_t(columns, error, seed)
    if found is not None:
        low, high = value - found[1], value - found[0]
    elif least >= FEW and bounded and 0 < value < 1:
        low, high = wilson(value, value * (1 - value) / error**2)
    else:
        half = error * float(stats.t.ppf((1 + COVERAGE) / 2, max(1, least - 1)))
        low, high = value - half, value + half
        if bounded and 0 < value < 1:
            width = half / (value * (1 - value))  # of the log-odds, to first order
            low, high = special.expit([special.logit(value) - width, special.logit(value) + width]).tolist()
    return (max(0.0, low), min(1.0, high)) if bounded else (low, high)


def _bootstrap_t(columns: list[Array], error: float, seed: int) -> tuple[float, float] | None:
    """How far resamples' sums lie from the sum at both quantiles; ``None``: too many of them hardly vary."""
    centred = [x - x.mean() for x in columns]
    drawn = list(zip(_draws(tuple(map(len, columns)), seed), centred, strict=True))
    means = [times @ x / len(x) for times, x in drawn]
    squares = [(times @ x**2 / len(x) - m**2) / max(1, len(x) - 1) for m, (times, x) in zip(means, drawn, strict=True)]
    errors = np.sqrt(np.maximum(sum(squares), 0.0))
    varied = errors > 0.1 * error
    if varied.mean() < (1 + COVERAGE) / 2:
        return None
    low, high = np.quantile(sum(means)[varied] / errors[varied], [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(error * low), float(error * high)


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of n items, which need not be a whole number.

    >>> low, high = wilson(0.0, 40)
    >>> low, round(high, 3)
    (0.0, 0.088)
    """
    z2 = float(stats.norm.ppf((1 + COVERAGE) / 2)) ** 2
    middle, half = share + z2 / (2 * n), math.sqrt(z2 * (share * (1 - share) + z2 / (4 * n)) / n)
    low, high = (middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # rounding must not leave out a share of 0 or 1


def difference(groups: Sequence[Array]) -> tuple[float, float]:
    """Test whether a sum of means over items is 0, as of differences between two models on the same items.

    It is the t-test, of several groups Welch's, or that with a pooled variance where this one is less sure: a few items
    that happen to be equal do not say how much they vary. A group of one item is taken to vary as the others do. One
    group of two values, as of 0 and 1 less a goal, has the exact test of a share, and one of equal items that of 0 or 1
    which all lie on one side of their goal. Else one group should be symmetric about 0 where nothing is, as differences
    between two models are, or ``testable``.

    Args:
        groups: Values of items, (N,) each; as for ``interval``.

    Returns:
        The two-sided p, and the least p that so many items can have whatever their values: of all patterns of signs of
        one group, or of all ways to part two. The first is never below the second; NaN if a value is.

    >>> p, least = difference([np.array([0.1, 0.3, 0.2, 0.4])])
    >>> round(p, 3), least
    (0.125, 0.125)
    """
    sizes = [len(x) for x in groups]
    least = 2.0 ** (1 - sizes[0]) if len(sizes) == 1 else least_p(sizes[0], sum(sizes) - sizes[0])
    value = sum(float(x.mean()) for x in groups)
    if not math.isfinite(value):
        return math.nan, least
    low, high = float(groups[0].min()), float(groups[0].max())
    if len(sizes) == 1 and low < 0 < high and np.isin(groups[0], (low, high)).all():
        n, hits, chance = sizes[0], int((groups[0] == high).sum()), low / (low - high)
        tails = stats.binom.cdf(hits, n, chance), stats.binom.sf(hits - 1, n, chance)
        return max(least, min(1.0, 2 * float(min(tails)))), least
    if max(sizes) == 1:
        return 1.0, least
    errors = _squared_errors(groups)
    error = sum(errors)
    if error <= 1e-24 * value**2:
        alike = 2 * (1 - min(1.0, abs(value))) ** sizes[0] if len(sizes) == 1 else 0.0
        return (min(1.0, max(least, alike)) if value else 1.0), least
    freedom = error**2 / sum(e**2 / max(1, n - 1) for e, n in zip(errors, sizes, strict=True))
    p = float(2 * stats.t.sf(abs(value) / math.sqrt(error), freedom))
    if len(sizes) == 2:
        free = sum(sizes) - 2
        pooled = sum(float(x.var()) * len(x) for x in groups) / free * sum(1 / n for n in sizes)
        p = max(p, float(2 * stats.t.sf(abs(value) / math.sqrt(pooled), free)))
    return max(least, p), least


def testable(values: Array) -> bool:
    """Whether the mean of these values, (N,), can be told from a number, at the level that ``difference`` states.

    Differences between models are symmetric where nothing is; values themselves may be skewed, and then t rejects too
    often: .23 to .13 where they are lognormal (sigma 1.2), of 6 to 40. Shares can be tested. Other values must be ten
    at least, and 25 times their squared skewness (Cochran 1977, section 2.15), which holds .02 to .06.

    >>> testable(np.array([0.0, 1.0])), testable(np.arange(10.0)), testable(np.exp(np.arange(10.0)))
    (True, True, False)
    """
    if len(np.unique(values)) <= 2 or not np.isfinite(values).all():
        return True
    away = values - values.mean()
    return len(values) >= max(FEW, 25 * float((away**3).mean() ** 2 / (away**2).mean() ** 3))


def _squared_errors(groups: Sequence[Array]) -> list[float]:
    """Squared standard errors of groups' means; one item alone varies as the most variable other group does."""
    widest = max((float(x.var(ddof=1)) for x in groups if len(x) > 1), default=0.0)
    return [(float(x.var(ddof=1)) if len(x) > 1 else widest) / len(x) for x in groups]


def least_p(n: int, m: int) -> float:
    """The least two-sided p of a test that tells n items from m others: ``2 / C(n + m, n)``.

    >>> least_p(1, 39), least_p(1, 10) > LEVEL
    (0.05, True)
    """
    return 2 / math.comb(n + m, n)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down correction; NaN stays NaN and counts for nothing.

    >>> [round(x, 3) for x in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    corrected = list(p)
    order = sorted((i for i, x in enumerate(p) if not math.isnan(x)), key=p.__getitem__)
    largest = 0.0
    for k, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - k) * p[i]))
        corrected[i] = largest
    return corrected


@lru_cache(maxsize=4)
def _draws(sizes: tuple[int, ...], seed: int) -> list[Array]:
    """How often each item of each group is in each resample, (R, N) a group; most metrics are of as many items."""
    rng = np.random.default_rng(seed)
    return [rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64) for n in sizes]
