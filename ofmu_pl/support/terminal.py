"""Times as people say them, and tables of which a terminal cuts nothing, however narrow it is."""

import sys
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from ofmu_pl.support.escapes import visible

NARROWEST = 80  # columns that a table needs at least
FILE = 170  # columns of what is no terminal


def console() -> Console:
    """What tables are printed on: the terminal, whose lines wrap where it is narrower than any table, or a wide file.

    Rich would cut numbers to fit, and a number that is cut is another number.
    """
    found = Console(file=sys.stdout)
    return Prudent(file=sys.stdout, width=max(found.width, NARROWEST) if found.is_terminal else FILE)


class Prudent(Console):
    """A console of rich's on which all text is ``visible``, whoever wrote it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as rich does; only rich's own control codes are left."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def span(seconds: float) -> str:
    """A time as people say it.

    >>> span(0.523), span(240.0), span(6000.0)
    ('0.52 s', '4 min', '1.7 h')
    """
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def print_whole(table: Table, on: Console) -> None:
    """Print a table as wide as it is: a narrower terminal wraps its lines, where rich would cut words and numbers."""
    natural = Measurement.get(on, on.options.update(max_width=10_000), table).maximum
    Prudent(file=on.file, width=max(on.width, natural)).print(table)
