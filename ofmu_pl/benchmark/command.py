"""Grids of methods, scenarios and seeds: ordinary runs of ``fit``, each in its own folder, each run once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
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

    Returns:
        The benchmark's folder.

    Raises:
        UserError: What ``specs.check`` says; another process is at work on this benchmark; or, at the end, runs failed.
    """
    folder = below(logs, name, "name")
    check(experiments, folder)
    with alone(folder), Live(workers) as live:
        run = Run(
            folder,
            Manifest(name, folder, experiments),
            Grid(experiments),
            Pool(workers, live, fit.__module__),
            live,
            fit,
        )
        run.everything()
    failures = [f"{place}: {sentence}" for place, sentence in run.manifest.failures().items()]
    sys.stdout.write(f"Runs: {folder}; what each is: {folder / MANIFEST}\n")
    report(folder)
    require_none(failures)
    return folder


class Run:
    """The stages: what others need, searches, the runs that are reported, comparisons of their models.

    Args:
        folder: Folder of the benchmark.
        manifest: Manifest of the benchmark, which is kept up to date.
        grid: Grid of all runs.
        pool: Pool that does the runs.
        live: Where progress is shown.
        fit: Does a run by its words.
    """

    def __init__(self, folder: Path, manifest: Manifest, grid: Grid, pool: Pool, live: Live, fit: Fit) -> None:
        self.folder, self.manifest, self.grid, self.pool, self.live, self.fit = folder, manifest, grid, pool, live, fit
        self.ended: dict[str, str | None] = {}
        """Sentence of a failure, or ``None``, by key."""
        self._places: dict[str, list[Place]] = {}

    def everything(self) -> None:
        """Run all stages."""
        grid, experiments = self.grid, self.grid.experiments
        first = grid.first()
        searches = [(name, *search) for name in experiments for search in grid.searches(name)]
        candidates = {search: grid.candidates(*search) for search in searches}
        searched = _distinct([cell for found in candidates.values() for _, cell in found])
        attacks = Attacks(self.folder, experiments, self.fit)
        comparisons = Comparisons(self.folder, experiments)
        for cell in [*first, *searched]:
            self.live.expect(cell.group)
        for name, e in experiments.items():  # those that are shared are known after the search alone
            self.live.expect(f"{name}/run", len(e.scenarios) * len(e.methods) * len(e.seeds))
            self.live.expect(attacks.group(name), attacks.number(name))
            self.live.expect("analysis", comparisons.number(name))
            for prepared, cell in grid.prepared(name):
                self.manifest.prepare(name, prepared, cell.key, cell.folder)
        self.manifest.write()

        self._cells([cell for cell in first if not cell.needs])
        self._cells([cell for cell in first if cell.needs])
        self._cells(searched)
        settings = {search: self._choose(search, candidates[search]) for search in searches}
        reported = self._reported(settings)
        self._cells(_distinct([reported[place] for place in by_seed(list(reported))]))
        for name in experiments:
            ready = {place: cell for place, cell in reported.items() if place[0] == name and self._fine(cell)}
            self._attack(attacks, name, {place: ready[place] for place in by_seed(list(ready))})
            self._jobs(list(comparisons.jobs(name, ready).values()))
            comparisons.write(name, ready)

    def _attack(self, attacks: Attacks, name: str, ready: dict[Place, Cell]) -> None:
        """Attack each finished run of an experiment, and then those of each method together."""
        jobs = attacks.jobs(name, ready)
        self.live.expect(attacks.group(name), len(jobs) - attacks.number(name))
        self._jobs(list(jobs.values()))
        for place, job in jobs.items():
            self.manifest.attacked(place, self.ended[job.key])
        together = attacks.over_runs(
            name, {place: ready[place] for place, job in jobs.items() if job.record is not None}
        )
        self.live.expect(attacks.group(name), len(together))
        self._jobs(list(together.values()))
        for method, job in together.items():
            self.manifest.attacked_together(name, method, self.ended[job.key])
        self.manifest.write()

    def _choose(
        self, search: tuple[str, str, str], candidates: list[tuple[dict[str, Any], Cell]]
    ) -> dict[str, Any] | None:
        options, record = chosen(
            [(o, self.folder / c.folder / "latest" if self._fine(c) else None) for o, c in candidates]
        )
        self.manifest.searched[search] = record
        return options

    def _reported(self, settings: dict[tuple[str, str, str], dict[str, Any] | None]) -> dict[Place, Cell]:
        """The runs that are reported, by their place; those without a setting have failed."""
        found: dict[Place, Cell] = {}
        for name, e in self.grid.experiments.items():
            self.live.expect(f"{name}/run", -len(e.scenarios) * len(e.methods) * len(e.seeds))
            for scenario in e.scenarios:
                for method, m in e.methods.items():
                    source = e.searched_in(name, scenario)
                    search = (source[0], method, source[1])
                    choice = settings[search] if m.candidates else {}
                    if m.candidates and search != (name, method, scenario):
                        record = {**self.manifest.searched[search], "of": "/".join(source)}
                        self.manifest.searched[name, method, scenario] = record
                    for seed in e.seeds:
                        place = (name, scenario, method, seed)
                        if choice is None:
                            self.manifest.end(place, self._why(search))
                            continue
                        cell = found[place] = self.grid.run(name, method, scenario, seed, choice)
                        self.manifest.place(place, cell.folder)
                        self._places.setdefault(cell.key, []).append(place)
                        if cell.key in self.ended:
                            self.manifest.end(place, self.ended[cell.key])
        for cell in _distinct(list(found.values())):
            if cell.key not in self.ended:
                self.live.expect(cell.group)
        self.manifest.write()
        return found

    def _why(self, search: tuple[str, str, str]) -> str:
        """The sentence of a method that failed at every candidate."""
        (_, first), *_ = self.grid.candidates(*search)
        return f"it failed at every candidate of its search, at the first since: {self.ended[first.key]}"

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
            words = cell.words(self.folder)
            place = self.folder / cell.folder
            job = Job(place, cell.group, cell.key, partial(self.fit, words), words, f"latest/{RESULTS}")
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


def by_seed(places: list[Place]) -> list[Place]:
    """Order the runs of each scenario by seed, so that an interrupted benchmark has whole replicates.

    Args:
        places: Experiment, scenario, method and seed, with seeds in the order asked for.
    """
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

    Args:
        folder: The folder.
        what: What is at work there, for the message.

    Raises:
        UserError: Another process holds it.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / ".lock"))
        except BlockingIOError:
            raise UserError(f"Another {what} is at work in '{folder}': wait for it, or end it.") from None
        yield


def _distinct(cells: list[Cell]) -> list[Cell]:
    return list({cell.key: cell for cell in cells}.values())
