"""What a few seeds allow to say: spreads, paired tests with their limits, ranks, distance to the retrained model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from ofmu_pl.metrics import interval, overall_score
from ofmu_pl.metrics.bootstrap import LEVEL, holm
from ofmu_pl.metrics.vision import MAIN_METRICS
from ofmu_pl.report.runs import RETRAINED, Findings, Replicate, number

EXACT, DRAWN = 14, 9999  # most pairs of which every pattern of signs is taken, and how many are drawn of more
TOFU_SCORE = ("forget_quality", "model_utility", "forget_truth_ratio")


@dataclass(frozen=True)
class Spread:
    """The spread of one number over replicates.

    Attributes:
        n: Number of replicates.
        mean: NaN if there are none.
        std: Sample standard deviation (n - 1); NaN below two.
        low: Lower end of the 95 % interval of the mean; NaN below two.
        high: Its other end.
    """

    n: int
    mean: float
    std: float = math.nan
    low: float = math.nan
    high: float = math.nan


def spread(values: Sequence[float]) -> Spread:
    """Mean, deviation and interval (``metrics.interval``: the t interval of fewer than ten values).

    >>> spread([1.0, 2.0, 3.0]).std
    1.0
    """
    if not values:
        return Spread(0, math.nan)
    x = np.asarray(values, np.float64)
    if len(x) < 2:
        return Spread(1, float(x[0]))
    return Spread(len(x), float(x.mean()), float(x.std(ddof=1)), *interval([x]))


def spread_of(entries: Iterable[Mapping[str, Any]], unit: float = 1) -> Spread:
    """The spread of metrics' values over replicates; of a single one the interval is that over its rows.

    Args:
        entries: Entries with ``value`` and ``interval``; those without a finite value are left out.
        unit: What all numbers are multiplied by.
    """
    known = [(unit * value, e) for e in entries if (value := number(e.get("value"))) is not None]
    ends = known[0][1].get("interval") if len(known) == 1 else None
    low, high = (number(x) for x in ends) if isinstance(ends, list) and len(ends) == 2 else (None, None)
    if low is None or high is None:
        return spread([value for value, _ in known])
    return Spread(1, known[0][0], low=unit * low, high=unit * high)


TRADE_OFFS = (
    ("UA", "TA"),
    ("forget_quality_D", "model_utility"),
    ("forget_Q_A_Prob", "model_utility"),
    ("forget_truth_ratio", "model_utility"),
    ("forget_Q_A_Prob", "retain_Q_A_Prob"),
    ("wmdp_bio_efficacy", "mmlu_accuracy"),
    ("wmdp_cyber_efficacy", "mmlu_accuracy"),
)
"""What is forgotten against what is kept: the first pair that a group's results hold."""


def trade_off(experiment: Findings, scenarios: list[str]) -> tuple[str, str] | None:
    """The first of ``TRADE_OFFS`` both metrics of which methods of these scenarios have."""
    has = {
        metric: any(experiment.values(scenarios, method, metric) for method in experiment.methods)
        for metric in {metric for pair in TRADE_OFFS for metric in pair}
    }
    return next((pair for pair in TRADE_OFFS if all(has[metric] for metric in pair)), None)


def front(experiment: Findings, scenarios: list[str], metrics: Sequence[str]) -> list[str]:
    """Methods that no other one is better than in the mean merit of every metric."""
    means = {}
    for method in experiment.methods:
        merits = [list(merit(experiment, scenarios, method, metric).values()) for metric in metrics]
        if all(merits):
            means[method] = np.array([np.mean(values) for values in merits])
    return [m for m, own in means.items() if not any((other > own).all() for other in means.values())]


def merit(experiment: Findings, scenarios: list[str], method: str, metric: str) -> dict[Replicate, float]:
    """How good a value is, the higher the better: ``-|value - target|``, or the value with the sign of its direction.

    Target and direction are those of ``results.json``, the target that of the same replicate.
    """
    found, sign = {}, 1 if experiment.declared(metric).higher_is_better else -1
    for key, run in experiment.of(scenarios, method).items():
        value, target = run.value(metric), number(run.metric(metric).get("target"))
        if value is not None:
            found[key] = sign * value if target is None else -abs(value - target)
    return found


@dataclass(frozen=True)
class Comparison:
    """Ours against one other method in one metric, replicate by replicate.

    Attributes:
        metric: What is compared (``forget_quality`` by its distance D).
        other: The other method.
        differences: Ours minus the other's merit by replicate that both have; above 0 ours is better.
        difference: Their mean.
        low: Lower end of the 95 % t interval of the difference.
        high: Its other end.
        p_t: Two-sided, paired t-test; NaN below two replicates, or where the difference does not vary.
        p_holm: The same after Holm's correction for all other methods.
        p_sign: Two-sided, exact sign-flip permutation test.
    """

    metric: str
    other: str
    differences: list[float]
    difference: float
    low: float
    high: float
    p_t: float
    p_holm: float
    p_sign: float

    @property
    def n(self) -> int:
        """Number of the replicates."""
        return len(self.differences)

    @property
    def verdict(self) -> int:
        """1: ours is better at the level of 0.05 by the corrected t-test, -1: worse, 0: neither is shown."""
        return int(np.sign(self.difference)) if self.p_holm < LEVEL else 0


def least_p(n: int) -> float:
    """Least p that the sign-flip test can give with n pairs: ``2^(1 - n)``; where patterns are drawn, two of them."""
    return min(1.0, 2.0 ** (1 - n)) if n <= EXACT else 2 / (DRAWN + 1)


def paired(differences: Sequence[float]) -> tuple[float, float, float, float]:
    """Two-sided p of the paired t-test and of the exact sign-flip test, and the 95 % t interval of the mean.

    The t-test takes the differences as normal, which a few of them cannot show. The permutation test takes nothing but
    that both signs are equally likely; with n pairs its least p is ``2^(1 - n)``: 0.25 at 3, 0.0625 at 5, so that it
    needs 6 pairs to fall below 0.05. Of more than 14 pairs 9,999 sign patterns are drawn, always the same.

    Args:
        differences: (n,); below two, or without any variation, p_t is NaN and the interval has no width.

    Returns:
        ``p_t``, ``p_sign``, ``low``, ``high``.
    """
    d = np.asarray(differences, np.float64)
    if len(d) < 2:
        at = float(d[0]) if len(d) else math.nan
        return math.nan, 1.0 if len(d) else math.nan, at, at
    exact = stats.permutation_test(
        (d, np.zeros_like(d)),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        vectorized=True,
        permutation_type="samples",
        n_resamples=2 ** len(d) if len(d) <= EXACT else DRAWN,
        random_state=0,  # a report that is made again says the same
    )
    if np.ptp(d) <= 1e-12 * np.abs(d).max():
        return math.nan, float(exact.pvalue), float(d[0]), float(d[0])
    found = stats.ttest_1samp(d, 0.0)
    ends = found.confidence_interval(0.95)
    return float(found.pvalue), float(exact.pvalue), float(ends.low), float(ends.high)


def compare(experiment: Findings, scenarios: list[str], metric: str) -> list[Comparison]:
    """Ours against every other method that shares a replicate with it; empty where there is no ``ours``."""
    if experiment.ours is None:
        return []
    metric = experiment.tested(metric)
    ours = merit(experiment, scenarios, experiment.ours, metric)
    rows = []
    for other in experiment.methods:
        theirs = merit(experiment, scenarios, other, metric)
        d = [ours[key] - theirs[key] for key in ours if key in theirs]
        if other != experiment.ours and d:
            rows.append((other, d, paired(d)))
    corrected = holm([found[0] for _, _, found in rows])
    return [
        Comparison(metric, other, d, float(np.mean(d)), low, high, p_t, p_holm, p_sign)
        for (other, d, (p_t, p_sign, low, high)), p_holm in zip(rows, corrected, strict=True)
    ]


@dataclass(frozen=True)
class Ranks:
    """Ranks of methods by merit, 1 the best.

    Attributes:
        by_metric: Mean rank over replicates, by method and metric.
        mean: Over metrics, too.
        friedman: p of the Friedman test that all methods are alike, with each replicate's mean rank over metrics as
            its one measurement of a method (metrics of one run are not independent); NaN below three methods or two
            replicates.
        replicates: How many of them all these methods share.
    """

    by_metric: dict[str, dict[str, float]]
    mean: dict[str, float]
    friedman: float
    replicates: int


def ranks(experiment: Findings, scenarios: list[str], metrics: list[str]) -> Ranks:
    """Ranks of the methods that have every metric in every replicate that any method has; the others have none.

    ``avg_gap`` has no part in it: it is made of the others.
    """
    metrics = list(dict.fromkeys(experiment.tested(m) for m in metrics if m != "avg_gap"))
    merits = {m: {k: merit(experiment, scenarios, m, k) for k in metrics} for m in experiment.methods}
    keys = sorted({key for found in merits.values() for values in found.values() for key in values})
    whole = [m for m, found in merits.items() if keys and all(set(values) == set(keys) for values in found.values())]
    if len(whole) < 2 or not metrics:
        return Ranks({}, {}, math.nan, 0)
    table = np.array(
        [[[merits[m][k][key] for m in whole] for key in keys] for k in metrics]
    )  # metric, replicate, method
    placed = stats.rankdata(-table, axis=2)
    blocks = placed.mean(axis=0)
    p = math.nan
    if len(whole) > 2 and len(keys) > 1 and np.ptp(blocks, axis=1).any():
        p = float(stats.friedmanchisquare(*blocks.T).pvalue)
    by_metric = {m: dict(zip(metrics, placed.mean(axis=1)[:, i].tolist(), strict=True)) for i, m in enumerate(whole)}
    return Ranks(by_metric, dict(zip(whole, blocks.mean(axis=0).tolist(), strict=True)), p, len(keys))


def distance(experiment: Findings, scenarios: list[str], method: str, metrics: list[str]) -> dict[Replicate, float]:
    """Mean over metrics of ``|value - retrained model's| / range`` by replicate: 0 is retrained, 1 the far end.

    The range is 100 for metrics in per cent and 1 for the others, so it does not depend on which methods are compared.
    A p-value is represented by its distance D; metrics that are distances themselves (``avg_gap``) are left out.
    """
    chosen = [m for m in dict.fromkeys(experiment.tested(m) for m in metrics) if m != "avg_gap"]
    parts: dict[Replicate, list[float]] = {}
    for metric in chosen:
        goal, whole = experiment.values(scenarios, RETRAINED, metric), experiment.declared(metric).unit == "%"
        for key, value in experiment.values(scenarios, method, metric).items():
            if key in goal:
                parts.setdefault(key, []).append(abs(value - goal[key]) / (100 if whole else 1))
    return {key: float(np.mean(found)) for key, found in parts.items() if len(found) == len(chosen)}


def overall(experiment: Findings, scenarios: list[str]) -> dict[str, dict[Replicate, float]]:
    """The paper's overall score by method and replicate (``metrics.overall_score``).

    Empty where its metrics are not all among the experiment's columns.

    The maximum is over the methods of the same replicate, the retrained model left out, so the score depends on them.
    """
    columns = experiment.columns(scenarios)
    names = MAIN_METRICS if "UA" in columns else TOFU_SCORE
    if not set(names) <= set(columns):
        return {}
    values = {m: {k: experiment.values(scenarios, m, k) for k in names} for m in experiment.methods}
    found: dict[str, dict[Replicate, float]] = {}
    for key in sorted({key for by_name in values.values() for key in by_name[names[0]]}):
        table = {m: {k: v[key] for k, v in by_name.items() if key in v} for m, by_name in values.items()}
        table = {m: v for m, v in table.items() if len(v) == len(names)}
        scores = overall_score(table)
        for method, score in scores.items():
            found.setdefault(method, {})[key] = score
    return found
