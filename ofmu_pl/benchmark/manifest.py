"""``benchmark.json``: what was asked for, what was chosen, and where each run is; rewritten whenever one ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace
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

    Args:
        name: Name of the benchmark.
        folder: Folder of the benchmark.
        experiments: By name.

    Attributes:
        searched: By experiment, method and scenario: ``choice``, ``scores`` by candidate, and ``of`` where they are
            another experiment's.
    """

    def __init__(self, name: str, folder: Path, experiments: dict[str, Planned]) -> None:
        self.name, self.path, self.experiments = name, folder / MANIFEST, experiments
        self.searched: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._together: dict[tuple[str, str], str] = {}  # why attacks failed, by experiment and SCENARIO/METHOD
        self._made: dict[tuple[str, str, str], MadeRecord] = {}  # by experiment, name in its prepare and key
        self._cells: dict[Place, CellRecord] = {
            (name, scenario, method, seed): CellRecord(
                scenario, method, seed, folder=f"{name}/{scenario}/{method}/seed_{seed}"
            )
            for name, e in experiments.items()
            for scenario in e.scenarios
            for method in e.methods
            for seed in e.seeds
        }
        if self.path.is_file():
            with suppress(UserError):  # a file that cannot be read is written anew
                self._remember(BenchmarkRecord.read(self.path))

    def _remember(self, before: BenchmarkRecord) -> None:
        """Take over runs that have finished, so that a report has them while the benchmark makes sure of them."""
        if before.results_version != RESULTS_VERSION:
            return
        for name in self.experiments.keys() & before.experiments.keys():
            now, then = self._experiment(name, self.experiments[name]), before.experiments[name]
            for cell in then.cells:
                place = (name, cell.scenario, cell.method, cell.seed)
                if place in self._cells and cell.status == "finished" and _asked(now, cell) == _asked(then, cell):
                    self._cells[place] = replace(cell, attack_error=None)  # attacks that failed are made again
                    searched = then.methods[cell.method].searched
                    if cell.scenario in searched:
                        self.searched[name, cell.method, cell.scenario] = searched[cell.scenario]

    def place(self, place: Place, folder: str) -> None:
        """Say where a run is: two places may share one."""
        self._cells[place].folder = folder

    def end(self, place: Place, error: str | None) -> None:
        """A run has finished or failed."""
        cell = self._cells[place]
        cell.status, cell.error = "finished" if error is None else "failed", error

    def prepare(self, experiment: str, name: str, key: str, folder: str) -> None:
        """Say where a model is made that runs of an experiment need."""
        self._made[experiment, name, key] = MadeRecord(folder)

    def made(self, key: str, error: str | None, seconds: float | None) -> None:
        """A run has finished or failed, which may have made a model that others need."""
        for record in (record for (*_, owner), record in self._made.items() if owner == key):
            record.status, record.error, record.seconds = "failed" if error else "finished", error, seconds

    def attacked(self, place: Place, error: str | None) -> None:
        """Say what became of the attacks on a run."""
        self._cells[place].attack_error = error

    def attacked_together(self, experiment: str, method: str, error: str | None) -> None:
        """Say what became of the attacks on the runs of a method (``SCENARIO/METHOD``) together."""
        if error is not None:
            self._together[experiment, method] = error

    def failures(self) -> dict[str, str]:
        """Sentences by folder of the run."""
        failed = {cell.folder: cell.error for cell in self._cells.values() if cell.error is not None}
        attacked = {cell.folder: cell.attack_error for cell in self._cells.values() if cell.attack_error is not None}
        attacked |= {f"{'/'.join(method)} together": why for method, why in self._together.items()}
        return failed | {f"attacks on {folder}": why for folder, why in attacked.items()}

    def write(self) -> None:
        """Put the file in the place of the one before."""
        BenchmarkRecord(
            name=self.name,
            version=__version__,
            results_version=RESULTS_VERSION,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            experiments={name: self._experiment(name, e) for name, e in self.experiments.items()},
        ).write(self.path)

    def _experiment(self, name: str, e: Planned) -> ExperimentRecord:
        methods = {
            method: MethodRecord(
                overlay=m.overlay,
                options=m.options,
                searched={s: found for (*owner, s), found in self.searched.items() if owner == [name, method]},
            )
            for method, m in e.methods.items()
        }
        shared = {f.name: getattr(e, f.name) for f in fields(Experiment)}
        return ExperimentRecord(
            **shared | {"attacks": list(files(e.attacks))},
            methods=methods,
            attack_errors={method: why for (owner, method), why in self._together.items() if owner == name},
            cells=[cell for (owner, *_), cell in self._cells.items() if owner == name],
            prepare={
                k: PreparedRecord(
                    base=p.base,
                    gives=p.gives,
                    options=p.options,
                    each=list(p.each),
                    made=[made for (*owner, _), made in self._made.items() if owner == [name, k]],
                )
                for k, p in e.prepare.items()
            },
        )


def _asked(e: ExperimentRecord, cell: CellRecord) -> tuple[Any, ...]:
    """What an experiment asks of a run."""
    method = e.methods.get(cell.method)
    own = None if method is None else (method.overlay, method.options)
    return e.base, e.options, e.gradients, e.scenarios.get(cell.scenario), own
