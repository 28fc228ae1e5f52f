"""Batches of like length: which neighbours by length go together, so that padding and calls cost least."""

from __future__ import annotations

from collections.abc import Sequence


def like_lengths(lengths: Sequence[int], rows: int, tokens: int, call: int) -> list[slice]:
    """Cut rows that are sorted by length into batches at the least cost; each row is padded to its batch's longest.

    Args:
        lengths: Numbers of tokens, growing.
        rows: Most rows of a batch.
        tokens: Most tokens of a batch with its padding; a row that is longer is a batch of its own.
        call: What a batch costs by itself, in tokens.

    >>> like_lengths([2, 2, 3, 9, 9], rows=9, tokens=99, call=3)
    [slice(0, 3, None), slice(3, 5, None)]
    >>> like_lengths([2, 2, 3, 9, 9], rows=2, tokens=99, call=3)
    [slice(0, 2, None), slice(2, 3, None), slice(3, 5, None)]
    """
    costs, begins = [0], [0]  # of the first rows alone: the least cost, and where the last batch begins
    for end, length in enumerate(lengths, 1):
        most = max(1, min(rows, tokens // max(1, length)))
        first = max(0, end - most)
        choices = [costs[begin] + (end - begin) * length for begin in range(first, end)]
        costs.append(min(choices) + call)
        begins.append(first + choices.index(costs[-1] - call))
    batches, end = [], len(lengths)
    while end:
        batches.append(slice(begins[end], end))
        end = begins[end]
    return batches[::-1]
