"""Values by what they have in common."""

from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
T = TypeVar("T")


def grouped(pairs: Iterable[tuple[Key, T]]) -> dict[Key, list[T]]:
    """Values by key, keys in the order in which they come first.

    >>> grouped([("ofmu", 1), ("npo", 2), ("ofmu", 3)])
    {'ofmu': [1, 3], 'npo': [2]}
    """
    found: dict[Key, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
