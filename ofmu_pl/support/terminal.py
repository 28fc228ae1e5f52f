"""Tables on a terminal: nothing of them is cut, however narrow it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from copy import copy

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

NARROWEST = 80
"""Columns that a table needs at least."""
FILE = 170
"""Columns of what is no terminal."""


def console() -> Console:
    """What tables are printed on: the terminal, whose lines wrap where it is narrower than any table, or a wide file.

    Rich would cut numbers to fit, and a number that is cut is another number.
    """
    found = Console(file=sys.stdout)
    return Console(file=sys.stdout, width=max(found.width, NARROWEST) if found.is_terminal else FILE)


def padding(on: Console) -> tuple[int, int, int, int]:
    """Spaces around the cells of a table: less where there is little room."""
    return (0, 1, 0, 1 if on.width >= 100 else 0)


def print_whole(table: Table, on: Console) -> None:
    """Print a table; what does not fit beside its first column follows below, beside that column again.

    Args:
        table: A table whose words and numbers are not to be cut.
        on: Where it is printed.
    """
    for part in _parts(table, on):
        on.print(part)


def _parts(table: Table, on: Console) -> Iterator[Table]:
    first, *left = table.columns
    while _width([first, *left], table, on) > on.width:
        tight = [_tight(column, on) for column in left]
        head, n = _tight(first, on, whole=True), len(left)
        while n > 1 and _width([head, *tight[:n]], table, on) > on.width:
            n -= 1
        part = copy(table)
        part.columns = [head, *tight[:n]]
        left, table = left[n:], copy(table)
        if not left:
            yield part
            return
        part.caption, table.title = None, None
        yield part
    table.columns = [first, *left]
    yield table


def _width(columns: list[Column], table: Table, on: Console) -> int:
    """How wide a table of these columns is."""
    part = copy(table)
    part.columns = columns
    return Measurement.get(on, on.options.update(max_width=10_000), part).maximum


def _tight(column: Column, on: Console, whole: bool = False) -> Column:
    """A column as wide as its longest word, which rich would cut rather than make other columns narrower.

    Args:
        column: The column.
        on: Where it is printed.
        whole: Whether it is as wide as its longest line, so that no line is broken.
    """
    found = copy(column)
    sizes = [Measurement.get(on, on.options, cell) for cell in (column.header, *column.cells)]
    found.width = max(size.maximum if whole else size.minimum for size in sizes)
    return found
