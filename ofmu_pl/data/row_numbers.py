"""Rows to forget, chosen by their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.files import numbered_lines


def forgotten_rows(given: Sequence[int] | str, n: int) -> list[int]:
    """Read and check the numbers of the rows to forget; sorted.

    >>> forgotten_rows([4, 1], 6)
    [1, 4]
    """
    numbers = _numbers_of(Path(given).expanduser()) if isinstance(given, str) else list(given)
    check_numbers(numbers, n, "data.forget_rows")
    if not 0 < len(numbers) < n:
        raise UserError(
            f"`data.forget_rows` names {len(numbers)} of {n} rows: leave at least one to forget and one to retain."
        )
    return sorted(map(int, numbers))


def check_numbers(numbers: Sequence[int], n: int, option: str) -> None:
    """Refuse numbers of what is not there, and of what is named twice."""
    for number, times in Counter(numbers).items():
        check_range(0, n - 1, whole=True, **{option: number})  # type: ignore[arg-type]
        if times > 1:
            raise UserError(f"{option} has {number} {times} times: name each once.")


def _numbers_of(path: Path) -> list[int]:
    if not path.is_file():
        raise UserError(f"`data.forget_rows` '{path}' is no file: give one with a row number a line, or the numbers.")
    numbers = []
    for line, text in numbered_lines(path):
        try:
            numbers.append(int(text))
        except ValueError:
            raise UserError(f"Line {line} of '{path}' is no row number: give one a line.") from None
    return numbers
