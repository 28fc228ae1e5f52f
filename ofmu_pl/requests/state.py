"""The state of all sequences: read from what runs left, and kept in ``requests.json``."""

import json
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from ofmu_pl import __version__
from ofmu_pl.benchmark.grid import Cell
from ofmu_pl.benchmark.pool import left
from ofmu_pl.benchmark.specs import Options, files
from ofmu_pl.report.runs import value_of
from ofmu_pl.requests.specs import Requests, Sequence, controls, sequences
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.kept import read_record
from ofmu_pl.support.records.manifest import MethodRecord
from ofmu_pl.support.records.reading import Entries
from ofmu_pl.support.records.requests import REQUESTS, ControlRecord, RequestRecord, RequestsRecord, Row, SequenceRecord
from ofmu_pl.support.records.results import FAILED, FINISHED, RESULTS, Cost, Results
from ofmu_pl.support.sets import REQUEST
from ofmu_pl.support.version import RESULTS_VERSION


class State:
    """What is to be run, and what has become of it."""

    def __init__(self, name: str, folder: Path, asked: Requests) -> None:
        self.name, self.folder, self.asked = name, folder, asked
        self.sequences, self.controls = sequences(asked), controls(asked)
        self.cells = [*chain.from_iterable(s.cells for s in self.sequences), *self.controls.values()]
        self.ended: dict[str, str | None] = {}  # the sentence of a failure, or None, by folder of a run that has ended

    def refuse_changes(self) -> None:
        """Compare with what was run before: a list may get longer or shorter, and nothing else may change.

        Raises:
            UserError: A request was run, or begun, with other settings; the message names those that differ.
        """
        path = self.folder / REQUESTS
        known: dict[str, RequestRecord] = {}
        record = read_record(RequestsRecord, path)
        for before in record.sequences if record else ():
            known |= {r.folder: r for r in before.requests}
        for sequence in self.sequences:
            for number, cell in enumerate(sequence.cells, start=1):
                place, old = self.folder / cell.folder, known.get(cell.folder)
                found = (left(place / FINISHED), left(place / FAILED), old)
                if not place.is_dir() or {record.key for record in found if record is not None} <= {cell.key}:
                    continue
                what = _changed(old.options, cell.options) if old else "the list had another request there"
                done = old is None or old.status == "finished"
                raise UserError(
                    f"Request {number} of '{sequence.method}' (seed {sequence.seed}) was run with other settings "
                    f"({what}), and what is there would be mixed with it: put that back, "
                    + ("or give this list another name." if done else f"or remove '{place}', which has not finished.")
                )

    def fine(self, cell: Cell) -> bool:
        """Whether a run has finished."""
        return self.ended.get(cell.folder, "not run") is None

    def failures(self) -> list[str]:
        """A sentence for each run that failed."""
        return [f"{cell.folder}: {self.ended[cell.folder]}" for cell in self.cells if self.ended.get(cell.folder)]

    def write(self) -> None:
        """Replace the record that was written before."""
        RequestsRecord(
            name=self.name,
            version=__version__,
            results_version=RESULTS_VERSION,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            base=list(files(self.asked.base)),
            options=self.asked.options,
            requests=self.asked.requests,
            retain_later=self.asked.retain_later,
            methods={name: MethodRecord(m.overlay, m.options) for name, m in self.asked.methods.items()},
            sequences=[self._measured(sequence) for sequence in self.sequences],
            controls=self._controls(),
        ).write(self.folder / REQUESTS)

    def _results(self, cell: Cell) -> Results | None:
        return Results.read(self.folder / cell.folder / "latest" / RESULTS) if self.fine(cell) else None

    def _became(self, cell: Cell) -> tuple[str, str | None]:
        error = self.ended.get(cell.folder)
        return ("finished" if self.fine(cell) else "failed" if error else "unfinished"), error

    def _measured(self, sequence: Sequence) -> SequenceRecord:
        found = SequenceRecord(sequence.method, sequence.seed)
        n, done = len(sequence.cells), []
        for number, cell in enumerate(sequence.cells, start=1):
            results = self._results(cell)
            cost = Cost() if results is None else results.cost
            found.requests.append(RequestRecord(number, cell.folder, cell.key, cell.options, *self._became(cell), cost))
            done += [] if results is None else [results]
        for metric in matrix_metrics([results.metrics for results in done]):
            columns = [of_requests(metric, results.metrics, t, n) for t, results in enumerate(done, start=1)]
            columns += [[None] * n] * (n - len(done))
            found.forgotten[metric] = [list(row) for row in zip(*columns, strict=True)]
            found.before[metric] = [value_of(results.before, metric) for results in done] + [None] * (n - len(done))
            found.returned[metric] = [rise(row, s) for s, row in enumerate(found.forgotten[metric])]
        for metric in kept_metrics(done[0].metrics) if done else []:
            values = [value_of(done[0].before, metric), *(value_of(results.metrics, metric) for results in done)]
            found.kept[metric] = values + [None] * (n - len(done))
        return found

    def _controls(self) -> list[ControlRecord]:
        """Retrained models; where none were asked for, those that the runs of the first method were compared with."""
        found = []
        for (seed, number), cell in self.controls.items():
            results = self._results(cell)
            found.append(self._control(seed, number, cell, results.metrics if results else {}))
        for sequence in self.sequences[:: len(self.asked.methods)] if not found else ():
            for number, cell in enumerate(sequence.cells, start=1):
                results = self._results(cell)
                if results is not None and results.reference is not None:
                    found.append(self._control(sequence.seed, number, cell, results.reference.metrics))
        return found

    def _control(self, seed: int, number: int, cell: Cell, metrics: Entries) -> ControlRecord:
        n = len(self.asked.requests)
        forgotten = {x: of_requests(x, metrics, number, n) for x in matrix_metrics([metrics])}
        kept = {x: value_of(metrics, x) for x in kept_metrics(metrics)}
        return ControlRecord(seed, number, cell.folder, *self._became(cell), forgotten, kept)


def _changed(then: Options, now: Options) -> str:
    """The options that differ, as JSON has them."""
    options = [key for key in sorted(then.keys() | now.keys()) if json.dumps(then.get(key)) != json.dumps(now.get(key))]
    return ", ".join(options) or "a configuration file or the version of ofmu_pl is another"


def matrix_metrics(columns: list[Entries]) -> list[str]:
    """Metrics of the forget side, less being better, that requests before were measured by, too.

    Args:
        columns: Metrics after each request. Of one alone all such metrics are taken.
    """
    first = columns[0] if columns else {}
    names = [name for name, x in first.items() if x.get("group") == "forgotten" and not x["higher_is_better"]]
    others: set[str] = set()
    for metrics in columns:
        others |= {name.split("_", 2)[2] for name in metrics if name.startswith(REQUEST)}
    return [name for name in names if not others or name.removeprefix("forget_") in others]


def kept_metrics(metrics: Entries) -> list[str]:
    """Metrics of what must stay."""
    return [name for name, entry in metrics.items() if entry.get("group") == "kept"]


def of_requests(metric: str, metrics: Entries, number: int, n: int) -> Row:
    """The values of each of n requests in the measurement after request ``number``, by a metric of the forget side."""
    other = metric.removeprefix("forget_")
    return [value_of(metrics, metric if s == number else f"{REQUEST}{s:02}_{other}") for s in range(1, n + 1)]


def rise(row: Row, s: int) -> float | None:
    """How far request s rises, at most, above its value after its own turn; ``None``: nothing came after it.

    >>> rise([0.125, 0.25, 0.1875], 0)
    0.125
    """
    own, later = row[s], [x for x in row[s + 1 :] if x is not None]
    return None if own is None or not later else max(later) - own
