"""Reads a folder of runs. What is half-written, doubled, mixed or broken becomes a sentence; the rest is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ofmu_pl.report.checks import check, drop_doubles, leave_out_other_definitions
from ofmu_pl.report.foreign import foreign_rows
from ofmu_pl.report.read import attacks_across, attacks_beside, record_at, run_of
from ofmu_pl.report.runs import Finding, Findings, default_metrics, number
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below
from ofmu_pl.support.pages import AUDIT
from ofmu_pl.support.records import (
    ANALYSIS,
    KINDS,
    MANIFEST,
    REQUESTS,
    RESULTS,
    AnalysisRecord,
    BenchmarkRecord,
    CellRecord,
    ExperimentRecord,
    MethodRecord,
    RequestsRecord,
    Results,
)

DEPTH = 4
"""Folders between a benchmark and a run's versions, at most: EXPERIMENT/SCENARIO/METHOD/seed_N."""


@dataclass
class Collection:
    """Everything that was found; the date is that of the manifest, a problem one sentence."""

    folder: Path
    name: str
    date: str = ""
    experiments: list[Findings] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def collect(folder: Path, foreign: list[Path] | None = None) -> Collection:
    """Experiments of a benchmark (``benchmark.json``), of requests (``requests.json``), or of a folder of runs.

    Ordinary runs are ``[SCENARIO/]METHOD/[seed_N/]version_K``; the one that ``latest`` points at counts.

    Args:
        folder: For example logs/quickstart.
        foreign: Folders of open-unlearning's evaluations, added as rows to the main tables of text.

    Raises:
        UserError: There is no such folder, or neither a benchmark nor a finished unlearning run.
    """
    if not folder.is_dir():
        raise UserError(f"'{folder}' is no folder: give the one that holds the runs, for example logs/quickstart.")
    found = Collection(folder, folder.resolve().name)
    manifest = _manifest(folder / MANIFEST, found.problems)
    if manifest is not None:
        found.name, found.date = manifest.name or found.name, manifest.date
        for name, entry in manifest.experiments.items():
            try:
                found.experiments.append(_described(folder, name, entry, found.problems))
            except UserError as error:
                manifest.broken[name] = str(error)
        found.problems += [
            f"The experiment '{name}' in {MANIFEST} is not described as a benchmark does ({why}), so it is left out."
            for name, why in manifest.broken.items()
        ]
    elif (folder / REQUESTS).is_file():
        record = RequestsRecord.read(folder / REQUESTS)
        found.name, found.date = record.name, record.date
        found.experiments.append(_in_turn(folder, record, found.problems))
    else:
        found.experiments.append(_walked(folder, found))
    rows = foreign_rows(foreign or [], found.problems)
    for experiment in found.experiments:
        experiment.across = attacks_across(folder, experiment, found.problems)
        drop_doubles(experiment, found.problems)
        leave_out_other_definitions(experiment, found.problems)
        check(experiment, found.problems)
        is_text = experiment.entry("forget_truth_ratio") or experiment.entry("forget_Q_A_Prob")
        if experiment.kind == "table" and is_text:
            experiment.foreign = rows
    return found


def _manifest(path: Path, problems: list[str]) -> BenchmarkRecord | None:
    """The manifest, if there is one that can be read."""
    try:
        return BenchmarkRecord.read(path) if path.is_file() else None
    except (OSError, UserError) as error:
        problems.append(f"The runs below '{path.parent}' are taken as they lie: {error}")
        return None


def _described(folder: Path, name: str, entry: ExperimentRecord, problems: list[str]) -> Findings:
    """An experiment as the manifest says."""
    kind = entry.kind
    if kind not in KINDS:
        problems.append(f"The experiment '{name}' is of an unknown kind '{kind}': its tables are shown, no figures.")
    runs = [run_of(folder, cell, problems) for cell in entry.cells]
    results = [r.results for r in runs if r.results is not None]
    path = below(folder, name, "The experiment") / ANALYSIS
    found = Findings(
        **vars(entry), name=name, runs=runs, analysis=record_at(AnalysisRecord, path, problems) or AnalysisRecord()
    )
    found.metrics = entry.metrics or ([] if kind == "cost" else default_metrics(results))
    found.gradients = number(entry.gradients)
    return found


def _in_turn(folder: Path, record: RequestsRecord, problems: list[str]) -> Findings:
    """Requests one after another: a scenario is the time after a request."""
    runs = []
    for s in record.sequences:
        for r in s.requests:
            cell = CellRecord(f"request {r.number}", s.method, s.seed, r.folder, r.status, r.error)
            runs.append(run_of(folder, cell, problems))
    later = "Rows of later requests are retained until their turn." if record.retain_later else ""
    return _undescribed(
        runs,
        name="requests",
        title=f"{len(record.requests)} requests one after another",
        kind="requests",
        note=f"Each request is unlearned from the model that the one before it left. {later}".strip(),
        options=record.options,
        scenarios={f"request {i}": request for i, request in enumerate(record.requests, start=1)},
        methods=record.methods,
        requests=record,
    )


def _undescribed(runs: list[Finding], methods: dict[str, MethodRecord], **more: Any) -> Findings:
    """An experiment of runs that no benchmark describes."""
    of_ofmu = [r.method for r in runs if r.fact("method") == "OFMU"]
    return Findings(
        metrics=default_metrics([r.results for r in runs if r.results]),
        ours="ofmu" if "ofmu" in methods else next(iter(of_ofmu), None),
        gradients=None,
        base=None,
        methods=methods,
        seeds=sorted({r.seed for r in runs}),
        cells=[],
        runs=runs,
        **more,
    )


def _walked(folder: Path, found: Collection) -> Findings:
    """One experiment of all ordinary runs below a folder.

    Raises:
        UserError: None has finished.
    """
    places: set[Path] = set()
    for depth in range(1, DEPTH + 1):
        places |= {v.parent for v in folder.glob("*/" * depth + "version_*") if v.is_dir()}
    runs = [run for place in sorted(places) if (run := _run_at(place, folder, found)) is not None]
    if not runs:
        for place, above in ((folder, folder.parent.parent), (folder / "latest", folder.parent)):
            if (place / RESULTS).is_file():
                raise UserError(
                    f"'{folder}' holds the runs of one method, and a report reads them from the folder above the "
                    f"methods: give '{above}'."
                )
        raise UserError(
            f"There is no finished unlearning run below '{folder}' (METHOD/latest/{RESULTS}): "
            "give the benchmark's folder, for example logs/quickstart, after a run of fit has ended."
            + "".join(f" {problem}" for problem in found.problems[:1])
        )
    note = "Ordinary runs, found by their folders: what they share is not known." if len(runs) > 1 else ""
    methods = {r.method: MethodRecord() for r in runs}
    return _undescribed(runs, methods, name="runs", title="Runs", note=note, scenarios={r.scenario: {} for r in runs})


def _run_at(place: Path, folder: Path, found: Collection) -> Finding | None:
    """The run that ``latest`` points at in a folder of versions; ``None``: there is none that unlearned."""
    relative, latest = place.relative_to(folder), place / "latest"
    *scenario, method = [p for p in relative.parts if not p.startswith("seed_")] or [place.name]
    if "-search-" in method:
        return None
    newest = max(place.glob("version_*"), key=lambda p: p.stat().st_mtime)
    if not (latest / RESULTS).is_file():
        if not list(place.glob(f"version_*/{RESULTS}")):
            found.problems.append(f"The run {relative}/{newest.name} is half-written: left out.")
        elif latest.is_symlink():  # without it, it was only validated, which is no run
            name = f"{relative}/{latest.readlink().name}"
            found.problems.append(f"The run {name}, which latest points at, has no {RESULTS}: left out.")
        return None
    results = record_at(Results, latest / RESULTS, found.problems)
    if results is None or not results.before:  # originals were trained, they did not unlearn
        return None
    if not (newest / RESULTS).is_file():
        shown = latest.resolve().name
        found.problems.append(f"The run {relative}/{newest.name} is half-written: {shown} is shown instead.")
    seed = results.provenance.get("seed")
    run = Finding("/".join(scenario) or found.name, method, seed if isinstance(seed, int) else 0, relative.as_posix())
    run.status, run.results, run.signed = "finished", results, (latest / AUDIT).is_file()
    run.attacks = attacks_beside(latest / RESULTS, found.problems)
    return run
