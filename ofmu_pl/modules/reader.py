"""Reads rows of the run's own data, token by token, at the network's weights of now."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.sampler import evenly
from ofmu_pl.losses import IGNORED
from ofmu_pl.networks.base import Batch

LOOKED_AT = 64
"""Rows of each side that a look reads."""
ROWS = 16
"""Rows read at a time."""

Rows = list[np.ndarray]
"""One array a row, with a number for each of its tokens."""
Told = Callable[[str, Sequence[int]], Rows]
"""Maps a split's name and numbers of its rows to a number for each of their tokens."""


class RowReader:
    """Losses of rows' tokens.

    Args:
        data: A ``PairedDataModule`` after ``setup``, whose ``never_seen`` names the split of held-out rows, if any.
        tokens: Maps a batch to its tokens' losses, (b, S), and targets, at the network's weights of now.
    """

    def __init__(self, data: PairedDataModule, tokens: Callable[[Batch], tuple[Tensor, Tensor]]) -> None:
        self.data, self.tokens = data, tokens

    def losses(self, stream: str, rows: Sequence[int]) -> Rows:
        """Token losses of rows of a split, in nats, float64, in their order."""
        read = []
        for part in torch.tensor(rows).split(ROWS):
            with torch.no_grad():
                nll, targets = self.tokens(self.data.collate(stream, part.tolist(), 0))
            read += [x[t != IGNORED].double().cpu().numpy() for x, t in zip(nll, targets, strict=True)]
        return read

    def count(self, stream: str) -> int:
        """Number of the rows of a split."""
        return len(self.data.splits[stream])

    def some(self, stream: str) -> Sequence[int]:
        """Numbers of the rows of a split that a look reads, evenly spread."""
        return evenly(range(self.count(stream)), LOOKED_AT)

    @property
    def held_out(self) -> Sequence[int]:
        """Numbers of the held-out rows that a look reads."""
        return self.some(str(self.data.never_seen))

    def read_held_out(self) -> Rows:
        """Token losses of these."""
        return self.losses(str(self.data.never_seen), self.held_out)


def means(rows: Rows) -> Tensor:
    """Mean losses of rows, (R,), float64."""
    return torch.tensor([row.mean() for row in rows], dtype=torch.float64)
