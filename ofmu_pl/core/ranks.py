r"""Several processes, one batch: every rank differentiates the plain loss of its rows, and results are added up.

Losses, gradients, H u and D3L[u, v] are linear in the data once the vectors are fixed, so a sum over ranks is the
only thing that is ever communicated, and no autograd graph crosses it. What is not linear (the similarity, norms, the
combination of products) is computed from sums, alike on every rank.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from ofmu_pl.core.vectors import Vector, add_, is_sharded, zeros_like


@dataclass(frozen=True)
class Ranks:
    """This process among those that share each batch.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
        sharded: Whether FSDP2 shards the network (the exact engine works on a whole copy even so).
    """

    rank: int = 0
    size: int = 1
    sharded: bool = False

    def share(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """This rank's rows of a batch that every rank holds: every ``size``-th row."""
        return batch if self.size == 1 else {k: v[self.rank :: self.size] for k, v in batch.items()}

    def sum_(self, vector: Vector) -> None:
        """In place the sum over ranks of a vector that each holds whole."""
        if self.size > 1:
            flat = torch.cat([x.reshape(-1) for x in vector])
            dist.all_reduce(flat)
            for x, part in zip(vector, flat.split([x.numel() for x in vector]), strict=True):
                x.copy_(part.view_as(x))

    @contextmanager
    def adding(self, out: Vector) -> Iterator[Vector]:
        """Where to add a rank's part of ``out``: to ``out`` itself, or apart until the parts are summed.

        They are kept apart only where ranks hold whole vectors; FSDP2's backward pass sums into shards by itself.
        """
        if self.size == 1 or is_sharded(out):
            yield out
            return
        part = zeros_like(out)
        yield part
        self.sum_(part)
        add_(out, [(1.0, part)])

    def first(self, value: float) -> float:
        """The first rank's number on every rank; it has the most rows of every batch."""
        return self.total(value if self.rank == 0 else 0.0)

    def total(self, value: float) -> float:
        """The sum over ranks of a number."""
        if self.size == 1:
            return value
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        x = torch.tensor(value, dtype=torch.float64, device=device)
        dist.all_reduce(x)
        return x.item()


ALONE = Ranks()
"""The ranks of a run of one process."""
