"""What a few seeds allow to say: spreads, paired tests with their limits, distance to the retrained model."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from ofmu_pl.metrics import interval, overall_score
from ofmu_pl.metrics.bootstrap import LEVEL, holm
from ofmu_pl.metrics.vision import MAIN_METRICS
from ofmu_pl.report.runs import Replicate, Study, number
from ofmu_pl.support.records.models import RETRAINED

EXACT, DRAWN = 14, 9999  # most pairs of which every pattern of signs is taken, and how many are drawn of more
TOFU_SCORE = ("forget_quality", "model_utility", "forget_truth_ratio")


@dataclass(frozen=True)
class Spread:
    """One number over n replicates: mean, sample deviation (n - 1), 95 % interval of the mean; NaN if too few."""

    n: int
    mean: float
    std: float = math.nan
    low: float = math.nan
    high: float = math.nan


BOUNDED = ("0 to 1", "p-value", "KS distance")
"""Units of values that lie between 0 and 1, and so do intervals of their means."""


def spread(values: Iterable[float], *, bounded: bool = False) -> Spread:
    """Mean, deviation and interval (``metrics.interval``: a t interval of fewer than ten values).

    >>> spread([1.0, 2.0, 3.0]).std
    1.0
    """
    x = np.array(list(values), np.float64)
    if not len(x):
        return Spread(0, math.nan)
    if len(x) < 2:
        return Spread(1, float(x[0]))
    return Spread(len(x), float(x.mean()), float(x.std(ddof=1)), *interval([x], bounded=bounded))


def spread_of(entries: Iterable[Mapping[str, Any]], unit: float = 1) -> Spread:
    """The spread of entries' finite values times the unit; of a single one the interval is that over its rows."""
    known = [(unit * value, e) for e in entries if (value := number(e.get("value"))) is not None]
    ends = known[0][1].get("interval") if len(known) == 1 else None
    low, high = (number(x) for x in ends) if isinstance(ends, list) and len(ends) == 2 else (None, None)
    if low is None or high is None:
        return spread([value for value, _ in known], bounded=all(e.get("unit") in BOUNDED for _, e in known))
    return Spread(1, known[0][0], low=unit * low, high=unit * high)


def spread_in(experiment: Study, method: str, metric: str) -> Spread:
    """The spread of a method's metric over replicates."""
    return spread(experiment.values(method, metric).values(), bounded=experiment.declared(metric).unit in BOUNDED)


def differences(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> list[float]:
    """Ours minus theirs, by what both have."""
    return [ours[key] - theirs[key] for key in ours if key in theirs]


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


def trade_off(experiment: Study) -> tuple[str, str] | None:
    """The first of ``TRADE_OFFS`` both metrics of which methods have."""

    def known(metric: str) -> bool:
        return any(experiment.values(method, metric) for method in experiment.methods)

    return next((pair for pair in TRADE_OFFS if all(map(known, pair))), None)


def front(experiment: Study, metrics: Sequence[str]) -> list[str]:
    """Methods that no other one is ahead of: Pareto's front."""
    return [method for method, better in ahead(experiment, metrics).items() if not better]


def ahead(experiment: Study, metrics: Sequence[str]) -> dict[str, list[str]]:
    """For each method those that equal it in the mean merit of every metric and beat it in one."""
    means = {}
    for method in experiment.methods:
        merits = [list(merit(experiment, method, metric).values()) for metric in metrics]
        if all(merits):
            means[method] = np.array(list(map(np.mean, merits)))
    found: dict[str, list[str]] = {}
    for method, own in means.items():
        found[method] = [m for m, other in means.items() if (other >= own).all() and (other > own).any()]
    return found


def merit(experiment: Study, method: str, metric: str) -> dict[Replicate, float]:
    """How good a value is, the higher the better: ``-|value - target|``, or the value with the sign of its direction.

    Target and direction are those of ``results.json``, the target that of the same replicate. Where some runs have a
    target, those without one have no merit.
    """
    found, sign = {}, 1 if experiment.declared(metric).higher_is_better else -1
    aimed = any(number(run.metric(metric).get("target")) is not None for run in experiment.finished)
    for key, run in experiment.of(method).items():
        value, target = run.value(metric), number(run.metric(metric).get("target"))
        if value is not None and (target is not None or not aimed):
            found[key] = sign * value if target is None else -abs(value - target)
    return found


@dataclass(frozen=True)
class Comparison:
    """Ours against one other method in one metric, replicate by replicate.

    Attributes:
        metric: What is compared (``forget_quality`` by its distance D).
        differences: Ours minus the other's merit by replicate that both have; above 0 ours is better.
        low, high: The 95 % t interval of the mean difference.
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
        """Replicates that both have."""
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

    Of fewer than two differences, (n,), or without any variation, p_t is NaN and the interval has no width. Returns
    ``p_t``, ``p_sign``, ``low``, ``high``.
    """
    d = np.asarray(differences, np.float64)
    if len(d) < 2:
        at = float(d[0])
        return math.nan, 1.0, at, at
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


def compare(experiment: Study, metric: str) -> list[Comparison]:
    """Ours against every other method that shares a replicate with it; empty where there is no ``ours``."""
    if experiment.ours is None:
        return []
    metric = experiment.tested(metric)
    ours = merit(experiment, experiment.ours, metric)
    rows = []
    for other in experiment.methods:
        theirs = merit(experiment, other, metric)
        d = differences(ours, theirs)
        if other != experiment.ours and d:
            rows.append((other, d, paired(d)))
    corrected = holm([found[0] for _, _, found in rows])
    return [
        Comparison(metric, other, d, float(np.mean(d)), low, high, p_t, p_holm, p_sign)
        for (other, d, (p_t, p_sign, low, high)), p_holm in zip(rows, corrected, strict=True)
    ]


def distance(experiment: Study, method: str, metrics: list[str]) -> dict[Replicate, float]:
    """Mean over metrics of ``|value - retrained model's| / range`` by replicate: 0 is retrained, 1 the far end.

    The range is 100 for metrics in per cent and 1 for the others, so it does not depend on which methods are compared.
    A p-value is represented by its distance D; metrics that are distances themselves (``avg_gap``) are left out.
    """
    chosen = [m for m in dict.fromkeys(map(experiment.tested, metrics)) if m != "avg_gap"]
    parts: dict[Replicate, list[float]] = {}
    for metric in chosen:
        goal, whole = experiment.values(RETRAINED, metric), experiment.declared(metric).unit == "%"
        for key, value in experiment.values(method, metric).items():
            if key in goal:
                parts.setdefault(key, []).append(abs(value - goal[key]) / (100 if whole else 1))
    return {key: float(np.mean(found)) for key, found in parts.items() if len(found) == len(chosen)}


def overall(experiment: Study) -> dict[str, dict[Replicate, float]]:
    """The paper's overall score by method and replicate (``metrics.overall_score``).

    Empty where its metrics are not all among the experiment's columns.

    The maximum is over the methods of the same replicate, the retrained model left out, so the score depends on them.
    """
    columns = experiment.columns
    names = MAIN_METRICS if "UA" in columns else TOFU_SCORE
    if not set(names) <= set(columns):
        return {}
    tables: dict[Replicate, dict[str, dict[str, float]]] = {}
    for method in experiment.methods:
        by_name = {name: experiment.values(method, name) for name in names}
        for key in set.intersection(*map(set, by_name.values())):
            tables.setdefault(key, {})[method] = {name: values[key] for name, values in by_name.items()}
    found: dict[str, dict[Replicate, float]] = {}
    for key, table in sorted(tables.items()):
        for method, score in overall_score(table).items():
            found.setdefault(method, {})[key] = score
    return found
