"""``benchmark.json``: what was asked for, what was chosen, and where each run is; rewritten whenever one ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ofmu_pl import __version__
from ofmu_pl.benchmark.specs import Planned, files
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records import (
    MANIFEST,
    BenchmarkRecord,
    CellRecord,
    Entries,
    Experiment,
    ExperimentRecord,
    MadeRecord,
    MethodRecord,
    PreparedRecord,
)
from ofmu_pl.support.version import RESULTS_VERSION

Place = tuple[str, str, str, int]
"""Experiment, scenario, method, seed."""


class Manifest:
    """The state of a benchmark; of one that is started again, what was known of the runs that are asked for as before.

    Attributes:
        experiments: What is written of each, by name.
    """

    def __init__(self, name: str, folder: Path, experiments: dict[str, Planned]) -> None:
        self.path, self.experiments = folder / MANIFEST, {name: _record(name, e) for name, e in experiments.items()}
        self._file = BenchmarkRecord(
            name=name, version=__version__, results_version=RESULTS_VERSION, experiments=self.experiments
        )
        self._made: dict[str, list[MadeRecord]] = {}  # by key
        self._cells: dict[Place, CellRecord] = {}
        for experiment, e in self.experiments.items():
            self._cells |= {(experiment, cell.scenario, cell.method, cell.seed): cell for cell in e.cells}
        if self.path.is_file():
            with suppress(UserError):  # a file that cannot be read is written anew
                self._remember(BenchmarkRecord.read(self.path))

    def _remember(self, before: BenchmarkRecord) -> None:
        """Take over runs that have finished, so that a report has them while the benchmark makes sure of them."""
        if before.results_version != RESULTS_VERSION:
            return
        for name in self.experiments.keys() & before.experiments.keys():
            now, then = self.experiments[name], before.experiments[name]
            for cell in then.cells:
                mine = self._cells.get((name, cell.scenario, cell.method, cell.seed))
                if mine is None or cell.status != "finished" or _asked(now, cell) != _asked(then, cell):
                    continue
                mine.folder, mine.status = cell.folder, cell.status
                searched = then.methods[cell.method].searched
                if cell.scenario in searched:
                    now.methods[cell.method].searched[cell.scenario] = searched[cell.scenario]

    def searched(self, experiment: str, method: str) -> Entries:
        """By scenario ``choice``, ``scores`` by candidate, and ``of`` where they are another experiment's."""
        return self.experiments[experiment].methods[method].searched

    def place(self, place: Place, folder: str) -> None:
        """Say where a run is: two places may share one."""
        self._cells[place].folder = folder

    def end(self, place: Place, error: str | None) -> None:
        """A run has finished or failed."""
        cell = self._cells[place]
        cell.status, cell.error = "finished" if error is None else "failed", error

    def prepare(self, experiment: str, name: str, key: str, folder: str) -> None:
        """Say where a model is made that runs of an experiment need."""
        record = MadeRecord(folder)
        self.experiments[experiment].prepare[name].made.append(record)
        self._made.setdefault(key, []).append(record)

    def made(self, key: str, error: str | None, seconds: float | None) -> None:
        """A run has finished or failed, which may have made a model that others need."""
        for record in self._made.get(key, []):
            record.status, record.error, record.seconds = "failed" if error else "finished", error, seconds

    def attacked(self, place: Place, error: str | None) -> None:
        """Say what became of the attacks on a run."""
        self._cells[place].attack_error = error

    def attacked_together(self, experiment: str, method: str, error: str | None) -> None:
        """Say what became of the attacks on the runs of a method (``SCENARIO/METHOD``) together."""
        if error is not None:
            self.experiments[experiment].attack_errors[method] = error

    def failures(self) -> dict[str, str]:
        """Sentences by folder of the run."""
        cells = self._cells.values()
        found = {cell.folder: cell.error for cell in cells if cell.error is not None}
        found |= {f"attacks on {cell.folder}": cell.attack_error for cell in cells if cell.attack_error is not None}
        for name, e in self.experiments.items():
            found |= {f"attacks on {name}/{method} together": why for method, why in e.attack_errors.items()}
        return found

    def write(self) -> None:
        """Replace the file that was written before."""
        self._file.date = datetime.now(UTC).isoformat(timespec="seconds")
        self._file.write(self.path)


def _record(name: str, e: Planned) -> ExperimentRecord:
    """An experiment none of whose runs has ended."""
    shared = {f.name: getattr(e, f.name) for f in fields(Experiment)} | {"attacks": list(files(e.attacks))}
    record = ExperimentRecord(
        **shared, methods={m: MethodRecord(x.overlay, x.options) for m, x in e.methods.items()}, cells=[]
    )
    for scenario in e.scenarios:
        for method in e.methods:
            folder = f"{name}/{scenario}/{method}"
            record.cells += [CellRecord(scenario, method, seed, f"{folder}/seed_{seed}") for seed in e.seeds]
    for prepared, p in e.prepare.items():
        record.prepare[prepared] = PreparedRecord(p.base, p.gives, p.options, list(p.each))
    return record


def _asked(e: ExperimentRecord, cell: CellRecord) -> tuple[Any, ...]:
    """What an experiment asks of a run."""
    method = e.methods.get(cell.method)
    own = None if method is None else (method.overlay, method.options)
    return e.base, e.options, e.gradients, e.scenarios.get(cell.scenario), own
