"""How far to forget: each token to held-out tokens' losses, along a path of equal steps, until rows look alike.

The levels of tokens are ``levels.py``, the position on the way ``path.py``, the comparison with held-out rows
``likeness.py``. As a ceiling the goal is one-sided: a row below its place on the path is pushed, with a rounded corner,

    far   : c softplus((z_path - z(l)) / c),   c = 0.05

and a row beyond is left alone. To call it back would be to teach its answer once more. What is to be kept: each retain
row's loss returns to what it was before the first step.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.sampler import batch_indices, evenly
from ofmu_pl.modules.levels import WIDTH, Levels
from ofmu_pl.modules.likeness import Likeness
from ofmu_pl.modules.path import Path
from ofmu_pl.modules.reader import LOOKED_AT, RowReader, Told, means
from ofmu_pl.networks.base import Batch

LONGEST_ITERATIONS = 100
"""Iterations that a two-sided goal's path takes at most, if it never waits."""
SHARE_OF_SHORT_RUN = 0.6
"""Share of a short run's iterations after which its path is at its goal; the rest repairs what is to be kept."""
SHARE_OF_CEILING = 0.15
"""The same of a ceiling, on any run: rows that come late do not arrive where batches are small."""


def path_length(iterations: int, *, one_sided: bool) -> float:
    """Iterations that the path of a run takes; of one that no number ends the longest.

    >>> path_length(100, one_sided=False), path_length(400, one_sided=False), path_length(200, one_sided=True)
    (60.0, 100, 30.0)
    """
    longest = SHARE_OF_CEILING * iterations if one_sided else min(LONGEST_ITERATIONS, SHARE_OF_SHORT_RUN * iterations)
    return LONGEST_ITERATIONS if iterations < 0 else max(1.0, longest)


class Goal:
    """Levels of forget tokens, the path to them, old losses of retain rows, and whether all is reached.

    Args:
        data: A ``PairedDataModule`` after ``setup``, whose ``never_seen`` names the split of held-out rows, if any.
        tokens: Maps a batch to its tokens' losses, (b, S), and targets, at the network's weights of now.
        iterations: Length of the run.
        guess: Loss of a uniform guess, in nats. Without held-out rows tokens end at half of it, images of forgotten
            classes at all of it.
        one_sided: Whether the goal is a ceiling that rises along the path, from beyond which no token is called back.
        expected: See ``Levels``.

    Attributes:
        old: (M,) loss of each retain row before the first step; NaN for rows that the run does not draw.
    """

    def __init__(
        self,
        data: PairedDataModule,
        tokens: Callable[[Batch], tuple[Tensor, Tensor]],
        iterations: int,
        guess: float,
        one_sided: bool = False,
        expected: Told | None = None,
    ) -> None:
        self.data, self.guess = data, guess
        self.reader = RowReader(data, tokens)
        blind = guess if data.modality == "images" else guess / 2
        self.levels = Levels(self.reader, blind, one_sided, expected)
        self.path = Path(path_length(iterations, one_sided=one_sided))
        self.likeness = Likeness(self.reader, self.levels.still_to_rise)
        self.old = torch.empty(0)

    def warn(self) -> None:
        """Say what held-out rows cannot tell, where there are none or few."""
        if self.data.never_seen is None:
            rank_zero_warn(
                f"{self.data.why_no_never_seen}, so forget rows are to end at a loss of {self.levels.blind:.2f} nats "
                f"(a model that knows nothing has ln V, {self.guess:.2f})."
            )
        elif not self.likeness.can_tell:
            count, held = self.reader.count("forget"), len(self.reader.held_out)
            rank_zero_warn(
                f"{count} forget row(s) beside {held} held-out row(s) are too few for a test: no AUC could tell them "
                "apart. The run goes by the loss that its forget rows are to have."
            )

    def begin(self, outer_batches: range) -> None:
        """Read the model that is to forget, once.

        ``outer_batches`` are the numbers of the retain batches that the run draws; empty: all retain rows are read.
        """
        m = self.reader.count("retain")
        self.levels.begin()
        drawn: set[int] = set()
        for number in outer_batches:
            drawn.update(batch_indices(m, self.data.batch_size, self.data.seed, "retain", number).tolist())
        rows = sorted(drawn) or list(range(m))
        self.old = torch.full((m,), math.nan, dtype=torch.float64)
        self.old[rows] = means(self.reader.losses("retain", rows))

    def rows(self, nll: Tensor, targets: Tensor, ids: Tensor) -> Tensor:
        """What the ascent raises: minus the distances, (b,), of forget rows from their goals (``Levels.distances``)."""
        return -self.levels.distances(nll, targets, ids, self.path.left())

    def gap(self, batch: Batch, steps: int, t: int, reached: float) -> float:
        """Distance, in log-odds, by which the path is ahead of a batch's rows at ascent ``t``, from 0, of ``steps``.

        A ceiling stands at the path's place of now, whatever ``t``.

        ``reached`` is the batch's mean of what the method ``rows`` gives at the present weights.
        """
        if self.levels.one_sided:  # its rows are measured from there
            return -reached
        now = self.path.left()
        first = [self.levels.first_distance(i, now) for i in batch["ids"].tolist()]
        return -self.path.left((t + 1) / steps) * float(np.mean(first)) - reached

    def rise(self, ids: Tensor, loss: float) -> float:
        """Rise of a retain batch's mean loss since before the first step, in nats.

        A row without an old loss, as in a run resumed for longer than planned, counts as the mean of the old losses.
        """
        old = self.old[ids.cpu()]
        return loss - float(torch.where(old.isnan(), self.old.nanmean(), old).mean())

    def measured_harm(self) -> float:
        """Mean rise of the losses of up to 64 retain rows since before the first step, in nats, measured now."""
        rows = evenly((~self.old.isnan()).nonzero().flatten().tolist(), LOOKED_AT)
        return rise_of(self.reader, rows, self.old[rows])

    def check(self) -> tuple[bool, dict[str, float]]:
        """Compare forget with held-out rows, and set the levels by the latter's losses of now.

        Returns:
            Whether the goal is reached, and what was measured.
        """
        arrived = self.path.way >= self.path.length
        seen: dict[str, float] = {}
        if self.data.never_seen is not None:
            arrived, seen = self.likeness.compare(self.levels.renew())
        elif arrived:
            rows = self.reader.some("forget")
            left = self.levels.still_to_rise(self.reader.losses("forget", rows), rows)
            arrived, seen = left <= WIDTH, {"goal/left": left}
        return arrived and self.path.kept, {"goal/harm": self.path.harm, **seen}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run cannot measure again."""
        levels, path = self.levels, self.path
        state = {"start": levels.start, "ends": levels.ends, "old": self.old, "levels": levels.levels}
        return {**state, "way": path.way, "harm": path.harm}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""
        self.levels.start, self.levels.ends, self.levels.levels = (state[k] for k in ("start", "ends", "levels"))
        self.path.way, self.path.harm, self.old = state["way"], state["harm"], state["old"]


def rise_of(reader: RowReader, rows: Sequence[int], old: Tensor) -> float:
    """Mean rise of the losses of retain rows, which were ``old``, (R,), in nats."""
    return float((means(reader.losses("retain", rows)) - old).mean())
