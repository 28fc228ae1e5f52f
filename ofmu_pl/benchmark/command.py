"""Grids of methods, scenarios and seeds: ordinary runs of ``fit``, each in its own folder, each run once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from ofmu_pl.benchmark.attacks import Attacks
from ofmu_pl.benchmark.comparison import Comparisons
from ofmu_pl.benchmark.grid import Cell, Grid, model_folder
from ofmu_pl.benchmark.manifest import Manifest, Place
from ofmu_pl.benchmark.pool import Job, Pool
from ofmu_pl.benchmark.progress import Live
from ofmu_pl.benchmark.search import chosen
from ofmu_pl.benchmark.specs import PREPARED, Planned, check
from ofmu_pl.report import report
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below, locked
from ofmu_pl.support.kept import damage, warn_damaged
from ofmu_pl.support.records import FINISHED, MANIFEST, RESULTS

Fit = Callable[[list[str]], None]
"""Does a run of ``fit`` (or another command) in this process, by the words of its command line."""
Search = tuple[str, str, str]
"""Experiment, method, scenario."""


def benchmark(
    name: str,
    experiments: dict[str, Planned],
    workers: int = 2,
    logs: Path = Path("logs"),
    pieces: Any = None,
    *,
    fit: Fit,
) -> Path:
    """Run every method of every experiment in every scenario with every seed, and report.

    Finished runs are not run again, also after a kill, and what two experiments ask for alike is run once. A run that
    fails is recorded and does not stop the rest; started again, the benchmark tries it anew unless it diverged, which
    it would again. Settings are searched on a seed of their own by what validation data say, every method with the
    same budget.

    Args:
        name: Folder under ``logs``.
        experiments: By name; one that shares runs with another stands after it.
        workers: Runs at a time, each on one thread, and on a GPU of its own where there are several.
        logs: Root of all outputs.
        pieces: Anything: a place for what YAML anchors repeat.
        fit: Does a run of ``fit`` by its words; each worker process imports its module once.

    Raises:
        UserError: What ``specs.check`` says; another process is at work on this benchmark; or, at the end, runs failed.
    """
    folder = below(logs, name, "name")
    check(experiments, folder)
    with alone(folder), Live(workers) as live:
        manifest = Manifest(name, folder, experiments)
        Stages(folder, manifest, Grid(experiments), Pool(workers, live, fit.__module__), live, fit).everything()
    failures = [f"{place}: {sentence}" for place, sentence in manifest.failures().items()]
    sys.stdout.write(f"Runs: {folder}; what each is: {folder / MANIFEST}\n")
    report(folder)
    require_none(failures)
    return folder


class Stages:
    """The stages of a benchmark: what others need, searches, reported runs, attacks on them, comparisons of models."""

    def __init__(self, folder: Path, manifest: Manifest, grid: Grid, pool: Pool, live: Live, fit: Fit) -> None:
        self.folder, self.manifest, self.grid, self.pool, self.live, self.fit = folder, manifest, grid, pool, live, fit
        self.ended: dict[str, str | None] = {}  # the sentence of a failure, or None, by key of a run that has ended
        self._places: dict[str, list[Place]] = {}

    def everything(self) -> None:
        """Run all stages."""
        grid, experiments = self.grid, self.grid.experiments
        first = grid.first()
        candidates: dict[Search, list[tuple[dict[str, Any], Cell]]] = {}
        searched: dict[str, Cell] = {}
        for name, e in experiments.items():
            for method, scenario in grid.searches(name):
                found = candidates[name, method, scenario] = grid.candidates(name, method, scenario)
                searched |= {cell.key: cell for _, cell in found}
            self.live.expect(f"{name}/run", e.size)  # those that are shared are known after the search alone
            for prepared, cell in grid.prepared(name):
                self.manifest.prepare(name, prepared, cell.key, cell.folder)
        for cell in [*first, *searched.values()]:
            self.live.expect(cell.group)
        comparisons, attacks = Comparisons(self.folder, experiments), Attacks(self.folder, experiments, self.fit)
        self.manifest.write()

        self._cells([cell for cell in first if not cell.needs])
        self._cells([cell for cell in first if cell.needs])
        self._cells(list(searched.values()))
        reported = self._reported({search: self._choose(search, found) for search, found in candidates.items()})
        in_order = {place: reported[place] for place in by_seed(list(reported))}
        self._cells(list({cell.key: cell for cell in in_order.values()}.values()))
        for name in experiments:
            ready = {place: cell for place, cell in in_order.items() if place[0] == name and self._fine(cell)}
            self.attack(attacks, name, ready)
            self._more_jobs(list(comparisons.jobs(name, ready).values()))
            comparisons.write(name, ready)

    def attack(self, attacks: Attacks, name: str, ready: dict[Place, Cell]) -> None:
        """Attack each finished run of an experiment, and then those of each method together."""
        jobs = attacks.jobs(name, ready)
        self._more_jobs(list(jobs.values()))
        for place, job in jobs.items():
            self.manifest.attacked(place, self.ended[job.key])
        attacked = {place: ready[place] for place, job in jobs.items() if job.record is not None}
        together = attacks.over_runs(name, attacked)
        self._more_jobs(list(together.values()))
        for method, job in together.items():
            self.manifest.attacked_together(name, method, self.ended[job.key])
        self.manifest.write()

    def _choose(self, search: Search, candidates: list[tuple[dict[str, Any], Cell]]) -> dict[str, Any] | None:
        experiment, method, scenario = search
        runs = [(o, self.folder / c.folder / "latest" if self._fine(c) else None) for o, c in candidates]
        options, self.manifest.searched(experiment, method)[scenario] = chosen(runs)
        return options

    def _reported(self, settings: dict[Search, dict[str, Any] | None]) -> dict[Place, Cell]:
        """The runs that are reported, by their place; those without a setting have failed."""
        found: dict[Place, Cell] = {}
        for name, e in self.grid.experiments.items():
            self.live.expect(f"{name}/run", -e.size)
            for scenario, (method, m) in product(e.scenarios, e.methods.items()):
                experiment, theirs = e.searched_in(name, scenario)
                search = (experiment, method, theirs)
                choice: dict[str, Any] | None = {}
                if m.candidates:
                    choice, record = settings[search], self.manifest.searched(experiment, method)[theirs]
                    if (experiment, theirs) != (name, scenario):
                        record = {**record, "of": f"{experiment}/{theirs}"}
                    self.manifest.searched(name, method)[scenario] = record
                for seed in e.seeds:
                    place = (name, scenario, method, seed)
                    if choice is None:
                        (_, first), *_ = self.grid.candidates(*search)
                        why = f"it failed at every candidate of its search, at the first since: {self.ended[first.key]}"
                        self.manifest.end(place, why)
                        continue
                    cell = found[place] = self.grid.run(name, method, scenario, seed, choice)
                    self.manifest.place(place, cell.folder)
                    self._places.setdefault(cell.key, []).append(place)
                    if cell.key in self.ended:
                        self.manifest.end(place, self.ended[cell.key])
        for cell in {cell.key: cell for cell in found.values() if cell.key not in self.ended}.values():
            self.live.expect(cell.group)
        self.manifest.write()
        return found

    def _fine(self, cell: Cell) -> bool:
        return self.ended.get(cell.key, "not run") is None

    def _cells(self, cells: list[Cell]) -> None:
        """Run what has not ended in this process; what needs a run that failed has failed, too."""
        jobs = []
        for cell in cells:
            if cell.key in self.ended:
                continue
            self._verify(cell)
            broken = [need.folder for need in cell.needs.values() if not self._fine(need)]
            job = job_of(cell, self.folder, self.fit)
            if broken:
                self.live.done(cell.group, None)
                self._end(job, f"the run that it needs has failed ({broken[0]})", fresh=True)
            else:
                jobs.append(job)
        self._jobs(jobs)

    def _verify(self, cell: Cell) -> None:
        """Have a prepared model that is damaged made anew: what others start from is looked at before they do."""
        model = model_folder(self.folder, cell)
        if Path(cell.folder).parts[0] == PREPARED and model.is_dir():
            problem = damage(model)
            if problem is not None:
                warn_damaged(model, problem)
                (self.folder / cell.folder / FINISHED).unlink(missing_ok=True)

    def _more_jobs(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.live.expect(job.group)
        self._jobs(jobs)

    def _jobs(self, jobs: list[Job]) -> None:
        self.pool.run(jobs, self._end)
        self.manifest.write()

    def _end(self, job: Job, sentence: str | None, fresh: bool) -> None:
        self.ended[job.key] = sentence
        record = job.record
        self.manifest.made(job.key, sentence, None if record is None else record.seconds)
        for place in self._places.get(job.key, []):
            self.manifest.end(place, sentence)
        if fresh:
            self.manifest.write()
            self.live.show(str(job.place.relative_to(self.folder)), sentence)


def job_of(cell: Cell, folder: Path, fit: Fit, *more: str) -> Job:
    """The job of a run in a benchmark's folder, with more words on its command line."""
    words = [*cell.words(folder), *more]
    return Job(folder / cell.folder, cell.group, cell.key, partial(fit, words), words, f"latest/{RESULTS}")


def by_seed(places: list[Place]) -> list[Place]:
    """Order the runs of each scenario by seed, as asked for, so that an interrupted benchmark has whole replicates."""
    groups, seeds = list(dict.fromkeys(p[:2] for p in places)), list(dict.fromkeys(p[3] for p in places))
    return sorted(places, key=lambda p: (groups.index(p[:2]), seeds.index(p[3])))


def require_none(failures: list[str]) -> None:
    """End a command of many runs, some of which failed.

    Raises:
        UserError: There are failures, each of which is printed.
    """
    sys.stdout.writelines(f"Failed: {sentence}\n" for sentence in failures)
    if failures:
        raise UserError(
            f"{len(failures)} of the runs failed, as said above: mend what can be, then start the same line again."
        )


@contextlib.contextmanager
def alone(folder: Path, what: str = "benchmark") -> Iterator[None]:
    """Hold a folder: two at work on one would run everything twice; the system frees the lock of one that was killed.

    Raises:
        UserError: Another process holds it.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / ".lock"))
        except BlockingIOError:
            raise UserError(f"Another {what} is at work in '{folder}': wait for it, or end it.") from None
        yield
