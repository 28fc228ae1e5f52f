"""How differences between seeds decide a statement: t-tests with one correction for all that the statement looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy import stats

from ofmu_pl.metrics.bootstrap import LEVEL, holm
from ofmu_pl.report.statistics import least_p, paired
from ofmu_pl.report.tables import figure

Verdict = Literal["reproduced", "contradicted", "not decidable"]
Found = tuple[str, Verdict, str]
"""The paper's words, what came out, and the numbers that decide."""


def directions(families: Sequence[Sequence[float]]) -> list[int]:
    """1 or -1 where a mean over seeds differs from 0 by the t-test, after Holm's correction for all of them; else 0."""
    corrected = holm([_p(d) for d in families])
    return [int(np.sign(np.mean(d))) if p < LEVEL else 0 for d, p in zip(families, corrected, strict=True)]


def direction(differences: Sequence[float]) -> int:
    """The same of one mean."""
    return directions([differences])[0]


def judged(families: Sequence[Sequence[float]]) -> Verdict:
    """What differences say of a statement that each of them should be above 0; either error has at most 5 %.

    Contradicted: one is below 0, after the correction for all. Reproduced: each is above 0 by its own test, which needs
    no correction, since all have to be (an intersection-union test).
    """
    if min(directions(families), default=0) < 0:
        return "contradicted"
    return "reproduced" if families and all(direction(d) > 0 for d in families) else "not decidable"


def _p(d: Sequence[float]) -> float:
    """Two-sided p of the t-test; of differences that do not vary, the least of the sign-flip test."""
    if len(d) < 2 or not any(d):
        return 1.0
    constant = np.ptp(d) <= 1e-12 * np.abs(d).max()
    return least_p(len(d)) if constant else float(stats.ttest_1samp(d, 0.0).pvalue)


def described(what: str, differences: Sequence[float]) -> str:
    """The mean difference with its interval, after words on what it is."""
    if not differences:
        return f"{what.rstrip(',:')}: no seed has both"
    mean = figure(float(np.mean(differences)))
    if len(differences) < 2:
        return f"{what} {mean} on one seed, which gives no interval"
    _, _, low, high = paired(differences)
    return f"{what} {mean} [{figure(low)}, {figure(high)}] over {len(differences)} seeds"
