"""What a list of requests must not change: what was run before, or begun, belongs to the list as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ofmu_pl import __version__
from ofmu_pl.benchmark.grid import HANDLE, Cell
from ofmu_pl.requests.sequences import Sequence
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records import (
    FAILED,
    FINISHED,
    REQUESTS,
    FailureRecord,
    JobRecord,
    RequestRecord,
    RequestsRecord,
)
from ofmu_pl.support.version import RESULTS_VERSION


def refuse_changes(folder: Path, sequences: list[Sequence]) -> None:
    """Compare with what was run before: a list may get longer or shorter, and nothing else may change.

    Args:
        folder: Folder of all runs.
        sequences: What is to be run.

    Raises:
        UserError: A request was run, or begun, with other settings; the message names the first that differs.
    """
    path = folder / REQUESTS
    if not path.is_file():
        return
    before = RequestsRecord.read(path)
    then = {(s.method, s.seed): s.requests for s in before.sequences}
    for sequence in sequences:
        known = then.get((sequence.method, sequence.seed), [])
        for cell, old in zip(sequence.cells, known, strict=False):
            place = folder / old.folder
            if old.key == cell.key or not place.is_dir():
                continue
            remedy = "put that back, or give this list another name"
            if old.status != "finished":
                remedy = f"put that back, or remove '{place}', where nothing has finished"
            raise UserError(
                f"Request {old.number} of '{sequence.method}' (seed {sequence.seed}) was run with other settings "
                f"({_difference(before, old, cell)}), so what is there belongs to another sequence: {remedy}."
            )
        _refuse_leftovers(folder, sequence, len(known))


def _refuse_leftovers(folder: Path, sequence: Sequence, known: int) -> None:
    """Refuse the folder of a run that the list did not name the last time, where another one lies."""
    for number, cell in enumerate(sequence.cells[known:], start=known + 1):
        place = folder / cell.folder
        left = [_key(JobRecord, place / FINISHED), _key(FailureRecord, place / FAILED)]
        if any(key not in (None, cell.key) for key in left):
            raise UserError(
                f"'{place}' holds another request {number} of '{sequence.method}' (seed {sequence.seed}), which the "
                "list had once: remove that folder, or give this list another name."
            )


def _key(kind: type[JobRecord] | type[FailureRecord], path: Path) -> str | None:
    """The key in what a job left; ``None``: it left nothing that can be read."""
    try:
        return kind.read(path).key
    except (OSError, UserError):
        return None


def _difference(before: RequestsRecord, old: RequestRecord, cell: Cell) -> str:
    """The first setting that differs from what a request was run with."""
    now = {str(key): _plain(x) for key, x in cell.options.items()}
    then = {key: _plain(x) for key, x in old.options.items()}
    for key in sorted(now.keys() | then.keys()):
        one, other = then.get(key, "not set"), now.get(key, "not set")
        if one != other and not any(isinstance(x, str) and x.startswith(HANDLE) for x in (one, other)):
            return f"--{key} was {one} and is {other}"
    if before.results_version != RESULTS_VERSION:
        return f"ofmu_pl {before.version} made other numbers than {__version__} makes"
    return f"the contents of {' or '.join(cell.configs)} have changed"


def _plain(x: Any) -> Any:
    """A value as JSON has it, whose keys are texts."""
    if isinstance(x, dict):
        return {str(key): _plain(y) for key, y in x.items()}
    return [_plain(y) for y in x] if isinstance(x, list | tuple) else x
