"""Whether forget rows' losses are as held-out rows', by the AUC of telling the two apart, if that could be told."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

ALIKE_AUC = 0.1
"""Largest distance of an AUC from 0.5 at which rows are alike, as far as its standard error of fewer rows lets it come.
The 95 % interval of a few rows would cover every AUC, and a test that could not reject must not end a run."""


def alike(forgotten: Sequence[float], held: Sequence[float]) -> tuple[bool, dict[str, float]]:
    """Compare losses of forget rows with held-out rows'.

    Returns:
        Whether they are alike; and the means, and the AUC ``P(held-out > forget) + P(equal) / 2``.

    >>> alike([1.0, 3.0], [2.0, 2.0])
    (True, {'forget': 2.0, 'held_out': 2.0, 'auc': 0.5})
    """
    ours, theirs = np.array(forgotten), np.array(held)
    difference = theirs[:, None] - ours
    auc = float((difference > 0).mean() + (difference == 0).mean() / 2)
    error = math.sqrt((len(ours) + len(theirs) + 1) / 12 / len(ours) / len(theirs))
    told = {"forget": float(ours.mean()), "held_out": float(theirs.mean()), "auc": auc}
    return abs(auc - 0.5) <= max(ALIKE_AUC, error), told
