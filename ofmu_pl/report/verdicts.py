"""How differences between seeds decide a statement: a 95 % t interval of their mean that leaves 0 out, or does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ofmu_pl.report.statistics import paired
from ofmu_pl.report.tables import figure

Verdict = Literal["reproduced", "contradicted", "not decidable"]
Found = tuple[str, Verdict, str]
"""The paper's words, what came out, and the numbers that decide."""


def direction(differences: Sequence[float]) -> int:
    """1 or -1 where the interval of the mean leaves 0 out, else 0."""
    if len(differences) < 2:
        return 0
    _, _, low, high = paired(differences)
    return 1 if low > 0 else -1 if high < 0 else 0


def decided(differences: Sequence[float]) -> Verdict:
    """What differences say of a statement that they should be above 0."""
    return ("not decidable", "reproduced", "contradicted")[direction(differences)]


def described(what: str, differences: Sequence[float]) -> str:
    """The mean difference with its interval, after words on what it is."""
    if not differences:
        return f"{what.rstrip(',')}: no seed has both"
    mean = figure(float(np.mean(differences)))
    if len(differences) < 2:
        return f"{what} {mean} on one seed, which gives no interval"
    _, _, low, high = paired(differences)
    return f"{what} {mean} [{figure(low)}, {figure(high)}] over {len(differences)} seeds"
