"""The command ``lineage``: which models were trained on some rows, by the keyed hashes that their runs keep."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from rich.table import Table

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.lineage import prints
from ofmu_pl.data.own_files import read_source
from ofmu_pl.data.own_rows import form_of, sound_rows
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.escapes import say
from ofmu_pl.support.files import read_json
from ofmu_pl.support.keyed import KEY, key_of
from ofmu_pl.support.records.results import LINEAGE
from ofmu_pl.support.terminal import console, print_whole


def trace(sources: Sequence[str], models: Sequence[Path]) -> None:
    """Print how many rows each run below the folders was trained on, by stream.

    Args:
        sources: Files in the forms that ``fit`` reads, but for documents.
        models: Folders of runs, of exported models in them, or of many runs.
    """
    rows = list(chain.from_iterable(map(_rows, sources)))
    runs = list(chain.from_iterable(map(_runs, models)))
    table = Table(title=f"Of {len(rows)} rows")
    for heading in ("run", "trained on"):
        table.add_column(heading, overflow="fold")
    for run in dict.fromkeys(runs):
        found = _counts(rows, run)
        shown = [f"{n} in {stream}" for stream, n in found.items() if n]
        table.add_row(str(run), ", ".join(shown) or "none")
    print_whole(table, console())
    say("Rows in forget are those that the run was to forget: the model before it was trained on them.")


def _rows(source: str) -> list[Row]:
    rows = read_source(source, "rows")
    form = form_of(rows, {})
    if form == "text":
        raise UserError(
            f"'{rows.source}' holds documents, of which runs keep no hashes: give questions and answers, prompts and "
            "completions, or conversations."
        )
    return sound_rows(rows, form)


def _runs(folder: Path) -> list[Path]:
    """The runs that a folder holds, or else the one that it lies in; without what links lead to."""
    found = sorted(path.parent for path in folder.rglob(LINEAGE))
    if not found and (folder.resolve().parent / LINEAGE).is_file():
        return [folder.resolve().parent]
    if not found:
        raise UserError(
            f"'{folder}' holds no run that says what it was trained on ({LINEAGE}): give the folders of finished runs "
            "of text, which ofmu_pl made since 0.4 without evaluation.samples none and nobody has purged."
        )
    return found


def _counts(rows: Sequence[Row], run: Path) -> dict[str, int]:
    """Number of rows by stream of which anything was learnt; a conversation counts once."""
    try:
        key = key_of(run)
    except (OSError, ValueError) as error:
        raise UserError(
            f"'{run / KEY}', the key of the hashes beside it, is missing or damaged: put it back."
        ) from error
    sought = [prints(row, key) for row in rows]
    try:
        known = {stream: set(kept) for stream, kept in read_json(run / LINEAGE).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"'{run / LINEAGE}', the hashes of a run's rows, is damaged: put it back.") from error
    counts = {}
    for stream, kept in known.items():
        counts[stream] = sum(not kept.isdisjoint(own) for own in sought)
    return counts
