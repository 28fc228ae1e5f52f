"""Batches as a pure function of (seed, stream, number): nothing to save, nothing to fast-forward.

A run resumed at iteration k, on any number of devices, sees the batches that the uninterrupted run would have seen.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

T = TypeVar("T")
Item = dict[str, Any]
"""What the loader gives for one outer iteration, or for one batch of a pass."""


def batch_indices(n: int, batch_size: int, seed: int, stream: str, number: int) -> np.ndarray:
    """The items of one batch in an endless sequence of shuffled sweeps over ``n`` items.

    Each sweep is a permutation of its own, drawn without replacement; a batch may end one sweep and begin the next.
    A batch that is larger than the set is the whole set (an item twice in one mean would only weigh it double).
    One that ends a sweep and begins the next may hold an item twice (batches of 32 of 40 items hold 3 so on average).

    Args:
        n: Number of items, > 0.
        batch_size: Items per batch.
        seed: Seed of the run.
        stream: Name of the sequence (forget, retain, ...): each is independent of the others.
        number: Number of the batch in the stream, from 0.

    Returns:
        Positions of the items, (min(batch_size, n),) int64.
    """
    size = min(batch_size, n)
    first = number * size
    sweeps = range(first // n, (first + size - 1) // n + 1)
    items = np.concatenate([keyed_generator(f"{seed}/{stream}/{sweep}").permutation(n) for sweep in sweeps])
    return items[first - sweeps[0] * n :][:size]


def evenly(items: Sequence[T], most: int) -> Sequence[T]:
    """Return so many evenly spaced items, or all of fewer.

    >>> list(evenly(range(10), 4))
    [0, 2, 5, 7]
    """
    return items if len(items) <= most else [items[k * len(items) // most] for k in range(most)]


def keyed_generator(words: str) -> np.random.Generator:
    """A generator of its own for every text, the same in every process."""
    key = hashlib.sha256(words.encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


class EpochFrom(DistributedSampler[Any]):
    """The iterations from the present one to the end of its epoch, the same on every rank.

    It is a ``DistributedSampler`` of one rank so that Lightning does not wrap it in one of its own, which would list an
    epoch once and give it out in pieces for ever. Ranks share each item's rows, not the items. Its length is that of
    the whole epoch: Lightning itself adds the iterations before a resumed one.

    Args:
        length: Iterations per epoch.
        left: Gives the iterations that are left; called when the epoch's first item is drawn.
    """

    def __init__(self, length: int, left: Callable[[], range]) -> None:
        super().__init__(range(length), num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]
        self.left = left

    def __iter__(self) -> Iterator[int]:
        """k, k+1, ..., up to the epoch's last iteration."""
        yield from self.left()


class ResumableSampler(DataLoader[Any]):
    """A loader that Lightning may resume in mid-epoch: the sampler knows where, so there is nothing to store."""

    def state_dict(self) -> Item:
        """Return nothing, since the sampler's number is the state."""
        return {}

    def load_state_dict(self, state_dict: Item) -> None:
        """Restore nothing."""
