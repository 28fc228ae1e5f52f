"""The state of all sequences: read from what runs left, and kept in ``requests.json``."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ofmu_pl import __version__
from ofmu_pl.benchmark.grid import Cell
from ofmu_pl.benchmark.specs import files
from ofmu_pl.requests.sequences import Sequence, controls, sequences
from ofmu_pl.requests.specs import Asked
from ofmu_pl.support.records import (
    REQUESTS,
    RESULTS,
    ControlRecord,
    Entries,
    MethodRecord,
    RequestRecord,
    RequestsRecord,
    Results,
    SequenceRecord,
)
from ofmu_pl.support.records.requests import Row
from ofmu_pl.support.sets import REQUEST
from ofmu_pl.support.version import RESULTS_VERSION


class State:
    """What is to be run, and what has become of it.

    Args:
        name: Name of the folder.
        folder: Folder of all runs.
        asked: What is asked for.

    Attributes:
        sequences: Runs of each method on each seed.
        controls: Runs of retrained models, by seed and number.
        ended: Sentence of a failure, or ``None``, by the key of a run that has ended.
    """

    def __init__(self, name: str, folder: Path, asked: Asked) -> None:
        self.name, self.folder, self.asked = name, folder, asked
        self.sequences, self.controls = sequences(asked), controls(asked)
        self.ended: dict[str, str | None] = {}

    def fine(self, cell: Cell) -> bool:
        """Whether a run has finished."""
        return self.ended.get(cell.key, "not run") is None

    def failures(self) -> list[str]:
        """A sentence for each run that failed."""
        cells = [*(cell for s in self.sequences for cell in s.cells), *self.controls.values()]
        return [f"{cell.folder}: {self.ended[cell.key]}" for cell in cells if self.ended.get(cell.key)]

    def write(self) -> RequestsRecord:
        """Put the record in the place of the one before, and return it."""
        measured = [self._measured(sequence) for sequence in self.sequences]
        record = RequestsRecord(
            name=self.name,
            version=__version__,
            results_version=RESULTS_VERSION,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            base=list(files(self.asked.base)),
            options=self.asked.options,
            requests=self.asked.requests,
            retain_later=self.asked.retain_later,
            methods={name: MethodRecord(m.overlay, m.options) for name, m in self.asked.methods.items()},
            sequences=measured,
            controls=[self._control(*place, cell) for place, cell in self.controls.items()] or self._references(),
        )
        record.write(self.folder / REQUESTS)
        return record

    def _results(self, cell: Cell) -> Results | None:
        return Results.read(self.folder / cell.folder / "latest" / RESULTS) if self.fine(cell) else None

    def _became(self, cell: Cell) -> tuple[str, str | None]:
        error = self.ended.get(cell.key)
        return ("finished" if self.fine(cell) else "failed" if error else "unfinished"), error

    def _measured(self, sequence: Sequence) -> SequenceRecord:
        found = SequenceRecord(sequence.method, sequence.seed)
        n, done = len(sequence.cells), []
        for number, cell in enumerate(sequence.cells, start=1):
            results = self._results(cell)
            record = RequestRecord(number, cell.folder, cell.key, cell.options, *self._became(cell))
            if results is not None:
                record.cost = results.cost
                done.append(results)
            found.requests.append(record)
        for metric in matrix_metrics([results.metrics for results in done]):
            columns = [of_requests(metric, results.metrics, t, n) for t, results in enumerate(done, start=1)]
            columns += [[None] * n] * (n - len(done))
            found.forgotten[metric] = [list(row) for row in zip(*columns, strict=True)]
            found.before[metric] = [value(results.before, metric) for results in done] + [None] * (n - len(done))
            found.returned[metric] = [rise(row, s) for s, row in enumerate(found.forgotten[metric])]
        for metric in kept_metrics(done[0].metrics) if done else []:
            values = [value(done[0].before, metric), *(value(results.metrics, metric) for results in done)]
            found.kept[metric] = values + [None] * (n - len(done))
        return found

    def _control(self, seed: int, number: int, cell: Cell) -> ControlRecord:
        results = self._results(cell)
        status, error = self._became(cell)
        metrics = {} if results is None else results.metrics
        return self._retrained(seed, number, cell.folder, status, error, metrics)

    def _references(self) -> list[ControlRecord]:
        """The retrained models that the runs of the first method were compared with, where they were."""
        found = []
        for sequence in self.sequences:
            if sequence.method != self.sequences[0].method:
                continue
            for number, cell in enumerate(sequence.cells, start=1):
                results = self._results(cell)
                if results is not None and results.reference is not None:
                    metrics = results.reference.metrics
                    found.append(self._retrained(sequence.seed, number, cell.folder, "finished", None, metrics))
        return found

    def _retrained(
        self, seed: int, number: int, folder: str, status: str, error: str | None, metrics: Entries
    ) -> ControlRecord:
        n = len(self.asked.requests)
        forgotten = {x: of_requests(x, metrics, number, n) for x in matrix_metrics([metrics])}
        kept = {x: value(metrics, x) for x in kept_metrics(metrics)}
        return ControlRecord(seed, number, folder, status, error, forgotten, kept)


def value(metrics: Entries, name: str) -> float | None:
    """A metric's value; ``None`` where it is missing or not finite."""
    found: Any = metrics.get(name, {}).get("value")
    return float(found) if found is not None and math.isfinite(found) else None


def matrix_metrics(columns: list[Entries]) -> list[str]:
    """Metrics of the forget side, less being better, that requests before were measured by, too.

    Args:
        columns: Metrics after each request. Of one alone all such metrics are taken.
    """
    names = [
        name
        for name, entry in (columns[0].items() if columns else ())
        if entry.get("group") == "forgotten" and not entry["higher_is_better"]
    ]
    known = {name for metrics in columns for name in metrics if name.startswith(REQUEST)}
    others = {name.split("_", 2)[2] for name in known}
    return [name for name in names if not others or name.removeprefix("forget_") in others]


def kept_metrics(metrics: Entries) -> list[str]:
    """Metrics of what must stay."""
    return [name for name, entry in metrics.items() if entry.get("group") == "kept"]


def of_requests(metric: str, metrics: Entries, number: int, n: int) -> Row:
    """The values of every request in one measurement.

    Args:
        metric: A metric of the forget side.
        metrics: Metrics after request ``number``.
        number: Number of the request whose rows are the forget side there.
        n: How many requests there are.
    """
    other = metric.removeprefix("forget_")
    return [value(metrics, metric if s == number else f"{REQUEST}{s:02}_{other}") for s in range(1, n + 1)]


def rise(row: Row, s: int) -> float | None:
    """How far a request's value rises above that after its own turn, at most; ``None``: nothing came after it.

    Args:
        row: Its values after each request.
        s: Its place in the row.

    >>> rise([0.125, 0.25, 0.1875], 0)
    0.125
    """
    own, later = row[s], [x for x in row[s + 1 :] if x is not None]
    return None if own is None or not later else max(later) - own
