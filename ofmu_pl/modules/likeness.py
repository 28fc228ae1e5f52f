"""Whether forget rows can still be told from held-out rows: by an AUC of their losses, or by what is left to rise."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from ofmu_pl.data.guessable import OWN, facts_loss
from ofmu_pl.metrics.bootstrap import LEVEL, least_p
from ofmu_pl.metrics.membership import auc
from ofmu_pl.modules.levels import WIDTH
from ofmu_pl.modules.reader import LOOKED_AT, RowReader, Rows

ALIKE_AUC = 0.1
"""Largest distance of an AUC from 0.5 at which rows are alike; with few rows the AUC's standard error, if larger.
The 95 % interval of few rows would cover every AUC, and a test that cannot reject must not end a run."""
StillToRise = Callable[[Rows, Sequence[int], Rows], float]
"""Maps token losses of forget rows, their numbers, and losses of held-out rows to what is left to rise, in log-odds."""


def alike(forgotten: Sequence[float], held: Sequence[float]) -> tuple[bool, dict[str, float]]:
    """Whether losses of forget rows are like held-out rows'; the means, and ``AUC = P(held > forget) + P(equal) / 2``.

    >>> alike([1.0, 3.0], [2.0, 2.0])
    (True, {'forget': 2.0, 'held_out': 2.0, 'auc': 0.5})
    """
    ours, theirs = np.array(forgotten), np.array(held)
    area = auc(ours, theirs)
    error = math.sqrt((len(ours) + len(theirs) + 1) / 12 / len(ours) / len(theirs))
    told = {"forget": float(ours.mean()), "held_out": float(theirs.mean()), "auc": area}
    return abs(area - 0.5) <= max(ALIKE_AUC, error), told


class Likeness:
    """Compares forget rows with held-out rows.

    Args:
        reader: Reads rows at the weights of now.
        still_to_rise: Says how far rows are, where there are too few for any AUC to tell them apart.
    """

    def __init__(self, reader: RowReader, still_to_rise: StillToRise) -> None:
        self.reader, self.still_to_rise = reader, still_to_rise

    @property
    def can_tell(self) -> bool:
        """Whether there are rows enough for an AUC to tell the sides apart."""
        count = min(self.reader.count("forget"), LOOKED_AT)
        return least_p(count, len(self.reader.held_out)) <= LEVEL

    def compare(self, held: Rows) -> tuple[bool, dict[str, float]]:
        """Whether forget rows are like held-out rows, whose losses of now are ``held``, and what was measured."""
        rows = self.reader.some("forget")
        forgotten = self.reader.losses("forget", rows)
        same, told = alike([row.mean() for row in forgotten], [row.mean() for row in held])
        seen = {f"goal/{name}": value for name, value in told.items()}
        if not self.can_tell:
            left = self.still_to_rise(forgotten, rows, held)
            return abs(left) <= WIDTH, {**seen, "goal/left": left}
        kinds = self.reader.data.kinds_of("forget", rows)
        if kinds is not None:  # tokens that are not pushed may stay better known than in held-out rows
            ours = _facts(forgotten, kinds)
            theirs = _facts(held, self.reader.data.kinds_of(str(self.reader.data.never_seen), self.reader.held_out))
            same, told = alike(ours, theirs)
            seen |= {f"goal/facts_{name}": value for name, value in told.items()}
        return same, seen


def _facts(losses: Rows, kinds: Rows | None) -> list[float]:
    """Mean loss of each row's facts."""
    assert kinds is not None, "both sides are of one data module"
    return [facts_loss(row, kind == OWN) for row, kind in zip(losses, kinds, strict=True)]
