"""What the ranks of a run share: each scores its part, and all get everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from ofmu_pl.support.kept import read_kept

T = TypeVar("T")


def own_share() -> slice:
    """The rows of this rank: every n-th, where there are n ranks."""
    return slice(dist.get_rank(), None, dist.get_world_size()) if dist.is_initialized() else slice(None)


def gathered(share: T) -> list[T]:
    """The shares of all ranks, in their order."""
    if not dist.is_initialized():
        return [share]
    shares: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shares, share)
    return shares


def writes() -> bool:
    """Whether this rank writes what all have."""
    return not dist.is_initialized() or dist.get_rank() == 0


def read_shared(path: Path | None) -> Any:
    """Read what was kept; what the first rank finds holds for all, so that all ranks measure or none does."""
    stored = read_kept(path) if path is not None and writes() else None
    if dist.is_initialized():
        shared = [stored]
        dist.broadcast_object_list(shared)
        stored = shared[0]
    return stored
