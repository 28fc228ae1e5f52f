"""What the processes of one run tell each other, whole Python objects; a process alone has only itself to ask."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")


def is_first() -> bool:
    """Whether this process writes what all have."""
    return not dist.is_initialized() or dist.get_rank() == 0


def from_first(find: Callable[[], T]) -> T:
    """What the first process finds, on all of them, which it takes; no other process looks.

    Example:
        >>> from_first(lambda: 3)
        3
    """
    if not dist.is_initialized():
        return find()
    found: list[T | None] = [find() if is_first() else None]
    dist.broadcast_object_list(found)
    return found[0]  # type: ignore[return-value]


def own_share() -> slice:
    """The rows of this rank: every n-th, where there are n ranks."""
    return slice(dist.get_rank(), None, dist.get_world_size()) if dist.is_initialized() else slice(None)


def gathered(share: T) -> list[T]:
    """The shares of all processes, in their order; takes all."""
    if not dist.is_initialized():
        return [share]
    shares = [share] * dist.get_world_size()
    dist.all_gather_object(shares, share)
    return shares
