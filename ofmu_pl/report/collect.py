"""Reads a folder of runs. What is half-written, doubled, mixed or broken becomes a sentence; the rest is kept."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from ofmu_pl.report.checks import belonging, check
from ofmu_pl.report.runs import Foreign, StudiedRun, Study, default_metrics, foreign_rows, number
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below
from ofmu_pl.support.pages import AUDIT
from ofmu_pl.support.records.manifest import (
    KINDS,
    MANIFEST,
    BenchmarkRecord,
    CellRecord,
    ExperimentRecord,
    MethodRecord,
)
from ofmu_pl.support.records.reading import Record
from ofmu_pl.support.records.requests import REQUESTS, RequestsRecord
from ofmu_pl.support.records.results import (
    ACROSS,
    ANALYSIS,
    ATTACKS,
    FINISHED,
    RESULTS,
    AcrossRecord,
    AnalysisRecord,
    AttacksRecord,
    JobRecord,
    Results,
)

DEPTH = 4  # folders between a benchmark and a run's versions, at most: EXPERIMENT/SCENARIO/METHOD/seed_N
Left = TypeVar("Left", bound=Record)


@dataclass
class Collection:
    """Everything that was found; the date is that of the manifest, a problem one sentence."""

    folder: Path
    name: str
    date: str = ""
    experiments: list[Study] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def collect(folder: Path, foreign: list[Path] | None = None) -> Collection:
    """Experiments of a benchmark (``benchmark.json``), of requests (``requests.json``), or of a folder of runs.

    Ordinary runs are ``[SCENARIO/]METHOD/[seed_N/]version_K``; the one that ``latest`` points at counts. A folder
    that is none, or has neither a benchmark nor a finished unlearning run, is a ``UserError``.

    Args:
        folder: For example logs/quickstart.
        foreign: Folders of open-unlearning's evaluations, added as rows to the main tables of text.
    """
    if not folder.is_dir():
        raise UserError(f"'{folder}' is no folder: give the one that holds the runs, for example logs/quickstart.")
    problems: list[str] = []
    reader = Reader(folder, foreign_rows(foreign or [], problems), problems)
    name, date = folder.resolve().name, ""
    manifest = reader.read(BenchmarkRecord, folder / MANIFEST)
    if manifest is not None:
        name, date, experiments = manifest.name or name, manifest.date, reader.described(manifest)
    elif (folder / REQUESTS).is_file():
        record = RequestsRecord.read(folder / REQUESTS)
        name, date, experiments = record.name, record.date, [reader.in_turn(record)]
    else:
        experiments = [reader.walked()]
    for experiment in experiments:
        check(experiment, problems)
    return Collection(folder, name, date, experiments, problems)


class Reader:
    """Reads what lies in a folder; ``problems`` gets a sentence for what is missing or broken."""

    def __init__(self, folder: Path, foreign: Foreign, problems: list[str]) -> None:
        self.folder, self.foreign, self.problems = folder, foreign, problems

    def described(self, manifest: BenchmarkRecord) -> list[Study]:
        """Experiments as the manifest describes them."""
        found, broken = [], dict(manifest.broken)
        for name, entry in manifest.experiments.items():
            try:
                found.append(self._experiment(name, entry))
            except UserError as error:
                broken[name] = str(error)
        self.problems += [
            f"The experiment '{name}' in {MANIFEST} is not described as a benchmark does ({why}), so it is left out."
            for name, why in broken.items()
        ]
        return found

    def _experiment(self, name: str, entry: ExperimentRecord) -> Study:
        if entry.kind not in KINDS:
            self.problems.append(
                f"The experiment '{name}' is of an unknown kind '{entry.kind}': its tables are shown, no figures."
            )
        path = below(self.folder, name, "The experiment") / ANALYSIS
        runs = belonging(name, list(map(self._run, entry.cells)), self.problems)
        columns = entry.metrics or ([] if entry.kind == "cost" else default_metrics(runs))
        return Study(
            **vars(replace(entry, metrics=columns, gradients=number(entry.gradients))),
            name=name,
            runs=runs,
            foreign=self.foreign,
            analysis=self.read(AnalysisRecord, path) or AnalysisRecord(),
            across=self._across(runs),
        )

    def in_turn(self, record: RequestsRecord) -> Study:
        """Requests one after another: a scenario is the time after a request."""
        runs = []
        for s in record.sequences:
            for r in s.requests:
                cell = CellRecord(f"request {r.number}", s.method, s.seed, r.folder, r.status, r.error)
                runs.append(self._run(cell))
        later = "Rows of later requests are retained until their turn." if record.retain_later else ""
        note = f"Each request is unlearned from the model that the one before it left. {later}".strip()
        title = f"{len(record.requests)} requests one after another"
        return replace(
            self._undescribed("requests", title, note, record.methods, runs),
            kind="requests",
            options=record.options,
            scenarios={f"request {i}": request for i, request in enumerate(record.requests, start=1)},
            requests=record,
        )

    def _undescribed(
        self, name: str, title: str, note: str, methods: dict[str, MethodRecord], runs: list[StudiedRun]
    ) -> Study:
        """An experiment of runs that no benchmark describes."""
        of_ofmu = [r.method for r in runs if r.fact("method") == "OFMU"]
        runs = belonging(name, runs, self.problems)
        return Study(
            name=name,
            title=title,
            note=note,
            metrics=default_metrics(runs),
            ours="ofmu" if "ofmu" in methods else next(iter(of_ofmu), None),
            scenarios={r.scenario: {} for r in runs},
            seeds=sorted({r.seed for r in runs}),
            methods=methods,
            cells=[],
            runs=runs,
            foreign=self.foreign,
            across=self._across(runs),
        )

    def walked(self) -> Study:
        """One experiment of all ordinary runs below the folder; that none has finished is a ``UserError``."""
        folder = self.folder
        places: set[Path] = set()
        for depth in range(1, DEPTH + 1):
            places |= {v.parent for v in folder.glob("*/" * depth + "version_*") if v.is_dir()}
        runs = [run for place in sorted(places) if (run := self._run_at(place)) is not None]
        if not runs:
            for place, above in ((folder, folder.parent.parent), (folder / "latest", folder.parent)):
                if (place / RESULTS).is_file():
                    raise UserError(
                        f"'{folder}' holds the runs of one method, and a report is of several: give '{above}'."
                    )
            raise UserError(
                f"There is no finished unlearning run below '{folder}' (METHOD/latest/{RESULTS}): "
                "give the benchmark's folder, for example logs/quickstart, after a run of fit has ended."
                + "".join(f" {problem}" for problem in self.problems[:1])
            )
        note = "Ordinary runs, found by their folders: what they share is not known." if len(runs) > 1 else ""
        return self._undescribed("runs", "Runs", note, {r.method: MethodRecord() for r in runs}, runs)

    def _run_at(self, place: Path) -> StudiedRun | None:
        """The run that ``latest`` points at in a folder of versions; ``None``: there is none that unlearned."""
        relative, latest = place.relative_to(self.folder), place / "latest"
        *scenario, method = [p for p in relative.parts if not p.startswith("seed_")] or [place.name]
        newest = max(place.glob("version_*"), key=lambda p: p.stat().st_mtime)
        if not (latest / RESULTS).is_file():
            if not list(place.glob(f"version_*/{RESULTS}")):
                self.problems.append(f"The run {relative}/{newest.name} is half-written: left out.")
            elif latest.is_symlink():  # without it, it was only validated, which is no run
                name = f"{relative}/{latest.readlink().name}"
                self.problems.append(f"The run {name}, which latest points at, has no {RESULTS}: left out.")
            return None
        results = self.read(Results, latest / RESULTS)
        if results is None or not results.before:  # originals were trained, they did not unlearn
            return None
        if not (newest / RESULTS).is_file():
            shown = latest.resolve().name
            self.problems.append(f"The run {relative}/{newest.name} is half-written: {shown} is shown instead.")
        where, seed = "/".join(scenario) or self.folder.resolve().name, results.provenance.get("seed")
        cell = CellRecord(where, method, seed if isinstance(seed, int) else 0, relative.as_posix(), "finished")
        return self._finding(cell, place, results)

    def _run(self, cell: CellRecord) -> StudiedRun:
        """A run as a manifest names it, with all that it left."""
        try:
            place = below(self.folder, cell.folder, "The run")
        except UserError as error:
            return StudiedRun(**vars(replace(cell, status="failed", error=str(error))))
        if cell.status != "finished":
            return StudiedRun(**vars(cell))
        results = self.read(Results, place / "latest" / RESULTS)
        if results is None:
            why = f"its {RESULTS} is missing or cannot be read"
            return StudiedRun(**vars(replace(cell, status="unfinished", error=why)))
        seed = results.provenance.get("seed")
        if seed is not None and seed != cell.seed:
            self.problems.append(f"{cell.folder} is listed as seed {cell.seed} but its results say seed {seed}.")
        return self._finding(cell, place, results)

    def _finding(self, cell: CellRecord, place: Path, results: Results) -> StudiedRun:
        latest, job = place / "latest", self.read(JobRecord, place / FINISHED)
        return StudiedRun(
            **vars(cell),
            results=results,
            words=job.words if job else [],
            signed=(latest / AUDIT).is_file(),
            attacks=self.read(AttacksRecord, latest / ATTACKS) or AttacksRecord({}),
        )

    def _across(self, runs: list[StudiedRun]) -> dict[str, AcrossRecord]:
        """What attacks found over the runs of a method, from beside its runs' folders."""
        found = {}
        for run in runs:
            key, place = f"{run.scenario}/{run.method}", Path(run.folder)
            if run.results is not None and place.name.startswith("seed_") and key not in found:
                found[key] = self.read(AcrossRecord, self.folder / place.parent / ACROSS)
        return {key: record for key, record in found.items() if record is not None}

    def read(self, kind: type[Left], path: Path) -> Left | None:
        """A record, if there is one that can be read."""
        try:
            return kind.read(path) if path.is_file() else None
        except (OSError, UserError) as error:
            self.problems.append(f"What {path.name} says is left out: {error}")
            return None
