"""Grids of methods, scenarios and seeds: ordinary runs of ``fit``, each in its own folder, each run once."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from ofmu_pl.benchmark.comparison import Comparisons
from ofmu_pl.benchmark.grid import Cell, Grid, model_folder
from ofmu_pl.benchmark.manifest import Manifest, Place
from ofmu_pl.benchmark.pool import Job, Pool, left
from ofmu_pl.benchmark.progress import Live
from ofmu_pl.benchmark.search import chosen
from ofmu_pl.benchmark.specs import ATTACKS, PREPARED, Options, Planned, check, files
from ofmu_pl.metrics.per_example import FEWEST
from ofmu_pl.report import report
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.escapes import say
from ofmu_pl.support.files import below, file_hash, locked
from ofmu_pl.support.kept import damage, warn_damaged
from ofmu_pl.support.records.manifest import MANIFEST
from ofmu_pl.support.records.results import ATTACKS as FOUND
from ofmu_pl.support.records.results import BEGUN, FINISHED, RESULTS
from ofmu_pl.support.shipped import expanded
from ofmu_pl.support.version import key_of

Fit = Callable[[list[str]], None]
"""Does a run of ``fit`` (or another command) in this process, by the words of its command line."""
Search = tuple[str, str, str]  # experiment, method, scenario


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
    live = Live(workers, folder)
    with alone(folder), live.bar:
        manifest = Manifest(name, folder, experiments)
        stages = Stages(folder, manifest, Grid(experiments), Pool(workers, live), live, fit)
        stages.everything()
    failures = [f"{place}: {sentence}" for place, sentence in (manifest.failures() | stages.not_compared).items()]
    say(f"Runs: {folder}; what each is: {folder / MANIFEST}")
    report(folder)
    require_none(failures)
    return folder


class Stages:
    """The stages of a benchmark: what others need, searches, reported runs, attacks on them, comparisons of models."""

    def __init__(self, folder: Path, manifest: Manifest, grid: Grid, pool: Pool, live: Live, fit: Fit) -> None:
        self.folder, self.manifest, self.grid, self.pool, self.live, self.fit = folder, manifest, grid, pool, live, fit
        self.ended: dict[str, str | None] = {}  # the sentence of a failure, or None, by key of a run that has ended
        self.not_compared: dict[str, str] = {}  # the sentence of a failure, by folder of a comparison
        self.attacks: dict[Place, tuple[Cell, Job]] = {}  # a run and the attacks on it, by the run's place

    def everything(self) -> None:
        """Run all stages."""
        grid, experiments = self.grid, self.grid.experiments
        first: dict[str, Cell] = {}
        for name, what, cell in grid.first():
            first[cell.key] = cell
            if what in experiments[name].prepare:
                self.manifest.prepare(name, what, cell.key, cell.folder)
        candidates: dict[Search, list[tuple[Options, Cell]]] = {}
        searched: dict[str, Cell] = {}
        for name in experiments:
            for method, scenario in grid.searches(name):
                found = candidates[name, method, scenario] = grid.candidates(name, method, scenario)
                searched |= {cell.key: cell for _, cell in found}
        self.live.expect(len(first) + len(searched) + grid.size)  # less those that turn out to be shared
        comparisons = Comparisons(self.folder, experiments)
        self.manifest.write()

        self._cells([cell for cell in first.values() if not cell.needs])
        self._cells([cell for cell in first.values() if cell.needs])
        self._cells(list(searched.values()))
        reported = self._reported({search: self._choose(search, found) for search, found in candidates.items()})
        self.plan_attacks(reported)
        self._cells(list({cell.key: cell for cell in reported.values()}.values()))
        for name in experiments:
            ready = {place: cell for place, cell in reported.items() if place[0] == name and self._fine(cell)}
            self.attack(name, ready)
            self.compare(comparisons, name, ready)

    def plan_attacks(self, reported: dict[Place, Cell]) -> None:
        """Have each run attacked once it has finished, in a job of its own, where its experiment asks for that."""
        for place, cell in reported.items():
            name, scenario, method, seed = place
            if files(self.grid.experiments[name].attacks) and self.ended.get(cell.key) is None:
                self.attacks[place] = cell, self._attack_job(name, f"{scenario}/{method}/seed_{seed}", [cell])
        self.live.expect(len({job.key for _, job in self.attacks.values()}))

    def attack(self, name: str, ready: dict[Place, Cell]) -> None:
        """Attack the finished runs of an experiment that are not yet, and those of a method together, if enough."""
        jobs = {place: self.attacks[place][1] for place in ready if place in self.attacks}
        self._jobs(list({job.key: job for job in jobs.values() if job.key not in self.ended}.values()))
        methods: dict[str, list[Cell]] = {}
        for place, job in jobs.items():
            self.manifest.cells[place].attack_error = self.ended[job.key]
            if job.record is not None:
                methods.setdefault("/".join(place[1:3]), []).append(ready[place])
        together = {m: self._attack_job(name, m, runs) for m, runs in methods.items() if len(runs) >= FEWEST}
        self.live.expect(len(together))
        self._jobs(list(together.values()))
        for method, job in together.items():
            if error := self.ended[job.key]:
                self.manifest.experiments[name].attack_errors[method] = error
        self.manifest.write()

    def compare(self, comparisons: Comparisons, name: str, ready: dict[Place, Cell]) -> None:
        """Compare the models of an experiment's finished runs, where it asks for that."""
        jobs = list(comparisons.jobs(name, ready).values())
        self.live.expect(len(jobs))
        self._jobs(jobs)
        for job in jobs:
            if error := self.ended[job.key]:
                self.not_compared[str(job.place.relative_to(self.folder))] = error
        comparisons.write(name, ready)

    def _attack_job(self, name: str, place: str, runs: list[Cell]) -> Job:
        """The command ``attack`` on runs of an experiment."""
        words, hashes = ["attack"], []
        for path in files(self.grid.experiments[name].attacks):
            words.append(f"--config={expanded(path)}")
            hashes.append(file_hash(Path(expanded(path))))
        folders = [self.folder.absolute() / cell.folder / "latest" for cell in runs]
        words += ["--runs", *map(str, folders)]
        key = key_of([[cell.key for cell in runs], hashes])[:16]
        call = partial(self.fit, words)
        return Job(self.folder / ATTACKS / name / place, key, call, words, str(folders[-1] / FOUND))

    def _choose(self, search: Search, candidates: list[tuple[Options, Cell]]) -> Options | str:
        """The options that a search chose, or why it chose none."""
        experiment, method, scenario = search
        runs = [(o, self.folder / c.folder / "latest" if self._fine(c) else None) for o, c in candidates]
        options, self.manifest.searched(experiment, method)[scenario] = chosen(runs)
        (_, first), *_ = candidates
        why = f"it failed at every candidate of its search, at the first since: {self.ended[first.key]}"
        return why if options is None else options

    def _setting(self, name: str, method: str, scenario: str, settings: dict[Search, Options | str]) -> Options | str:
        """What a method has in a scenario, where another may have been searched; the manifest says so, too."""
        e = self.grid.experiments[name]
        if not e.methods[method].candidates:
            return {}
        experiment, theirs = e.searched_in(name, scenario)
        record = self.manifest.searched(experiment, method)[theirs]
        if (experiment, theirs) != (name, scenario):
            record = {**record, "of": f"{experiment}/{theirs}"}
        self.manifest.searched(name, method)[scenario] = record
        return settings[experiment, method, theirs]

    def _reported(self, settings: dict[Search, Options | str]) -> dict[Place, Cell]:
        """The runs that are reported, by their place; those without a setting have failed.

        They go seed by seed in each scenario, so that an interrupted benchmark has whole replicates.
        """
        found: dict[Place, Cell] = {}
        for name, e in self.grid.experiments.items():
            for scenario in e.scenarios:
                choices = {m: self._setting(name, m, scenario, settings) for m in e.methods}
                for seed, (method, choice) in product(e.seeds, choices.items()):
                    place = (name, scenario, method, seed)
                    record = self.manifest.cells[place]
                    if isinstance(choice, str):
                        record.status, record.error = "failed", choice
                        continue
                    cell = found[place] = self.grid.run(name, method, scenario, seed, choice)
                    self.manifest.place(place, cell.key, cell.folder)
                    if cell.key in self.ended:
                        self.manifest.end(cell.key, self.ended[cell.key])
        self.live.expect(len({cell.key for cell in found.values() if cell.key not in self.ended}) - self.grid.size)
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
                self.live.done(None)
                self._end(job, f"the run that it needs has failed ({broken[0]})", fresh=True)
            else:
                jobs.append(job)
        self._jobs(jobs)

    def _verify(self, cell: Cell) -> None:
        """Have a prepared model that is damaged or gone made anew: what others start from is looked at first."""
        model = model_folder(self.folder, cell)
        problem = damage(model) if Path(cell.folder).parts[0] == PREPARED else None  # a folder that is gone is damaged
        if problem is not None and model.is_dir():
            warn_damaged(model, problem)
        if problem is not None:
            (self.folder / cell.folder / FINISHED).unlink(missing_ok=True)

    def _jobs(self, jobs: list[Job]) -> None:
        self.pool.run(jobs, self._end)
        self.manifest.write()

    def _end(self, job: Job, sentence: str | None, fresh: bool) -> list[Job]:
        """Note the end of a job; returns the attacks on the run that it was, which another worker may begin at once."""
        self.ended[job.key] = sentence
        record = job.record
        self.manifest.end(job.key, sentence, None if record is None else record.seconds)
        if fresh:
            self.manifest.write()
            self.live.show(job.place, sentence)
        follow = {attack.key: attack for cell, attack in self.attacks.values() if cell.key == job.key}
        if sentence is None:
            return list(follow.values())
        self.live.expect(-len(follow))
        return []


def job_of(cell: Cell, folder: Path, fit: Fit) -> Job:
    """The job of a run in a benchmark's folder; one that was begun and has not ended goes on."""
    words, begun = cell.words(folder), left(folder / cell.folder / BEGUN)
    if begun is not None and begun.key == cell.key:
        words.append("--ckpt_path=last")
    return Job(folder / cell.folder, cell.key, partial(fit, words), words, f"latest/{RESULTS}")


def require_none(failures: list[str]) -> None:
    """End a command of many runs by an error where some failed; each is printed."""
    for sentence in failures:
        say(f"Failed: {sentence}")
    if failures:
        raise UserError(
            f"{len(failures)} of the runs failed, as said above: mend what can be, then start the same line again."
        )


@contextlib.contextmanager
def alone(folder: Path, what: str = "benchmark") -> Iterator[None]:
    """Hold a folder: two at work on it would run everything twice. The system frees the lock of one that was killed."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / ".lock"))
        except BlockingIOError:
            raise UserError(f"Another {what} is at work in '{folder}': wait for it, or end it.") from None
        yield
