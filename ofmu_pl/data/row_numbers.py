"""Rows to forget, chosen by their numbers."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import numbered_lines


def forgotten_rows(given: Sequence[int] | str, n: int) -> list[int]:
    """Read and check the numbers of the rows to forget; sorted.

    >>> forgotten_rows([4, 1], 6)
    [1, 4]
    """
    numbers = read_row_numbers(Path(given).expanduser()) if isinstance(given, str) else list(map(_whole, given))
    check_numbers(numbers, n, "`forget_rows`", "row")
    if not 0 < len(numbers) < n:
        raise UserError(
            f"`forget_rows` names {len(numbers)} of {n} rows: leave at least one to forget and one to retain."
        )
    return sorted(numbers)


def check_numbers(numbers: Sequence[int], n: int, option: str, what: str) -> None:
    """Refuse numbers of what is not there, and of what is named twice."""
    outside = [number for number in numbers if not 0 <= number < n]
    if outside:
        raise UserError(f"{option} has {outside[0]}, but the data set has {what}s 0 to {n - 1}: choose among these.")
    for number, times in Counter(numbers).most_common(1):
        if times > 1:
            raise UserError(f"{option} has {number} {times} times: name each {what} once.")


def read_row_numbers(path: Path) -> list[int]:
    """Read whole numbers from a text file, one per line."""
    if not path.is_file():
        raise UserError(f"`forget_rows` '{path}' is no file: give one with a row number a line, or the numbers.")
    numbers = []
    for line, text in numbered_lines(path):
        try:
            numbers.append(int(text))
        except ValueError:
            raise UserError(f"Line {line} of '{path}' is no row number: give one a line.") from None
    return numbers


def _whole(number: Any) -> int:
    """A row's number as it is: neither a share of one, nor whether the row in this place is chosen."""
    try:
        if isinstance(number, bool):
            raise TypeError
        return operator.index(number)
    except TypeError:
        raise UserError(
            f"`forget_rows` has {number!r}, no row number: give whole numbers from 0, of the rows to forget alone."
        ) from None
