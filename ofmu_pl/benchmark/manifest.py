"""``benchmark.json``: what was asked for, what was chosen, and where each run is; rewritten whenever one ends."""

from dataclasses import fields
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from ofmu_pl import __version__
from ofmu_pl.benchmark.specs import Planned, files
from ofmu_pl.support.kept import read_record
from ofmu_pl.support.records.manifest import (
    MANIFEST,
    BenchmarkRecord,
    CellRecord,
    Experiment,
    ExperimentRecord,
    MadeRecord,
    MethodRecord,
    PreparedRecord,
)
from ofmu_pl.support.records.reading import Entries
from ofmu_pl.support.version import RESULTS_VERSION

Place = tuple[str, str, str, int]  # experiment, scenario, method, seed


class Manifest:
    """The state of a benchmark; of one that is started again, what was known of the runs that are asked for as before.

    Attributes:
        experiments: What is written of each, by name.
        cells: The record of each run that is reported, by its place.
    """

    def __init__(self, name: str, folder: Path, experiments: dict[str, Planned]) -> None:
        self.name, self.path = name, folder / MANIFEST
        self.experiments = {name: _record(name, e) for name, e in experiments.items()}
        self.cells: dict[Place, CellRecord] = {}
        for experiment, e in self.experiments.items():
            self.cells |= {(experiment, c.scenario, c.method, c.seed): c for c in e.cells}
        self._runs: dict[str, list[CellRecord | MadeRecord]] = {}  # by key of a run what rests on it
        before = read_record(BenchmarkRecord, self.path)
        if before is not None:
            self._remember(before)

    def _remember(self, before: BenchmarkRecord) -> None:
        """Take over runs that have finished, so that a report has them while the benchmark makes sure of them."""
        if before.results_version != RESULTS_VERSION:
            return
        for name in self.experiments.keys() & before.experiments.keys():
            now, then = self.experiments[name], before.experiments[name]
            for cell in then.cells:
                own = self.cells.get((name, cell.scenario, cell.method, cell.seed))
                if own is None or cell.status != "finished" or _asked(now, cell) != _asked(then, cell):
                    continue
                own.folder, own.status = cell.folder, cell.status
                searched = then.methods[cell.method].searched
                if cell.scenario in searched:
                    now.methods[cell.method].searched[cell.scenario] = searched[cell.scenario]

    def searched(self, experiment: str, method: str) -> Entries:
        """By scenario ``choice``, ``scores`` by candidate, and ``of`` where they are another experiment's."""
        return self.experiments[experiment].methods[method].searched

    def place(self, place: Place, key: str, folder: str) -> None:
        """Say where a run is: two places may share one."""
        self.cells[place].folder = folder
        self._runs.setdefault(key, []).append(self.cells[place])

    def prepare(self, experiment: str, name: str, key: str, folder: str) -> None:
        """Say where a model is made that runs of an experiment need."""
        made = self.experiments[experiment].prepare[name].made
        if all(known.folder != folder for known in made):
            made.append(MadeRecord(folder))
            self._runs.setdefault(key, []).append(made[-1])

    def end(self, key: str, error: str | None, seconds: float | None = None) -> None:
        """A run has finished or failed, which may have made a model that others need."""
        for record in self._runs.get(key, []):
            record.status, record.error = "finished" if error is None else "failed", error
            if isinstance(record, MadeRecord):
                record.seconds = seconds or record.seconds

    def failures(self) -> dict[str, str]:
        """Sentences by folder of the run."""
        cells = self.cells.values()
        found = {cell.folder: cell.error for cell in cells if cell.error is not None}
        found |= {f"attacks on {cell.folder}": cell.attack_error for cell in cells if cell.attack_error is not None}
        for name, e in self.experiments.items():
            found |= {f"attacks on {name}/{method} together": why for method, why in e.attack_errors.items()}
        return found

    def write(self) -> None:
        """Replace the file that was written before."""
        BenchmarkRecord(
            name=self.name,
            version=__version__,
            results_version=RESULTS_VERSION,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            experiments=self.experiments,
        ).write(self.path)


def _record(name: str, e: Planned) -> ExperimentRecord:
    """An experiment as it was asked for."""
    shared = {f.name: getattr(e, f.name) for f in fields(Experiment)} | {"attacks": list(files(e.attacks))}
    return ExperimentRecord(
        **shared,
        methods={name: MethodRecord(m.overlay, m.options) for name, m in e.methods.items()},
        prepare={name: PreparedRecord(p.base, p.gives, p.options, list(p.each)) for name, p in e.prepare.items()},
        cells=[
            CellRecord(scenario, method, seed, f"{name}/{scenario}/{method}/seed_{seed}")
            for scenario, method, seed in product(e.scenarios, e.methods, e.seeds)
        ],
    )


def _asked(e: ExperimentRecord, cell: CellRecord) -> tuple[object, ...]:
    """What an experiment asks of a run."""
    method = e.methods.get(cell.method)
    own = None if method is None else (method.overlay, method.options)
    return e.base, e.options, e.gradients, e.scenarios.get(cell.scenario), own
