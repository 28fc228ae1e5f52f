"""What the terminal shows at the end: what is still known of each request, and what was kept."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from ofmu_pl.support.records import RequestsRecord, SequenceRecord
from ofmu_pl.support.terminal import console, print_whole


def show(record: RequestsRecord) -> None:
    """Print one table for each sequence.

    Args:
        record: What became of the requests.
    """
    on = console()
    for sequence in record.sequences:
        if sequence.forgotten:
            print_whole(_table(sequence), on)


def _table(sequence: SequenceRecord) -> Table:
    metric = next(iter(sequence.forgotten))
    title = f"{sequence.method}, seed {sequence.seed}: {metric} of each request, after each request"
    table = Table("", "before it", title=title, title_justify="left", title_style="bold", box=None)
    for request in sequence.requests:
        table.add_column(f"after {request.number}", justify="right")
    table.add_column("came back", justify="right", style="bold")
    rows = sequence.forgotten[metric]
    for s, row in enumerate(rows):
        shown = [sequence.before[metric][s], *row, sequence.returned[metric][s]]
        table.add_row(f"request {s + 1}", *map(_figure, shown))
    table.add_section()
    for name, values in sequence.kept.items():
        table.add_row(name, *map(_figure, values), _figure(_change(values)))
    table.add_row("gradients", "", *map(_figure, _gradients(sequence)), "")
    table.caption = "came back: the largest rise later; of what is kept: the whole change"
    table.caption_justify = "left"
    return table


def _gradients(sequence: SequenceRecord) -> Iterator[float | None]:
    return (request.cost.gradient_evaluations for request in sequence.requests)


def _change(values: list[float | None]) -> float | None:
    known = [x for x in values if x is not None]
    return known[-1] - known[0] if len(known) > 1 else None


def _figure(x: float | None) -> str:
    return "" if x is None else f"{x:.3g}" if abs(x) < 1000 else f"{x:.0f}"
