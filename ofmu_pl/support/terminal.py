"""Tables on a terminal: nothing of them is cut, however narrow it is."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

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
    """Print a table as wide as it is: a narrower terminal wraps its lines, where rich would cut words and numbers."""
    natural = Measurement.get(on, on.options.update(max_width=10_000), table).maximum
    Console(file=on.file, width=max(on.width, natural)).print(table)
