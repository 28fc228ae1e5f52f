"""Reads what a run left: what is missing or broken becomes a sentence, the rest is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from ofmu_pl.report.runs import Finding, Findings
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below
from ofmu_pl.support.pages import AUDIT
from ofmu_pl.support.records import (
    ACROSS,
    ATTACKS,
    FINISHED,
    RESULTS,
    AcrossRecord,
    AnalysisRecord,
    AttacksRecord,
    CellRecord,
    JobRecord,
    Results,
)

Left = TypeVar("Left", JobRecord, AnalysisRecord, AcrossRecord, AttacksRecord, Results)


def run_of(folder: Path, cell: CellRecord, problems: list[str]) -> Finding:
    """A run as the manifest of a folder names it, with all that it left."""
    run = Finding(**vars(cell))
    try:
        place = below(folder, run.folder, "The run")
    except UserError as error:
        run.status, run.error = "failed", str(error)
        return run
    if run.status != "finished":
        return run
    path = place / "latest" / RESULTS
    run.results, run.signed = record_at(Results, path, problems), path.with_name(AUDIT).is_file()
    if run.results is None:
        run.status, run.error = "unfinished", f"its {RESULTS} is missing or cannot be read"
        return run
    seed = run.fact("seed")
    if seed is not None and seed != run.seed:
        problems.append(f"{run.folder} is listed as seed {run.seed} but its results say seed {seed}.")
    run.attacks = attacks_beside(path, problems)
    job = record_at(JobRecord, place / FINISHED, problems)
    run.words = job.words if job else []
    return run


def attacks_beside(results: Path, problems: list[str]) -> AttacksRecord:
    """What attacks found on a run, from beside its results."""
    return record_at(AttacksRecord, results.with_name(ATTACKS), problems) or AttacksRecord({})


def attacks_across(folder: Path, experiment: Findings, problems: list[str]) -> dict[str, AcrossRecord]:
    """What attacks found over the runs of a method, from beside its runs' folders."""
    places = {
        f"{run.scenario}/{run.method}": (folder / run.folder).parent / ACROSS
        for run in experiment.finished
        if Path(run.folder).name.startswith("seed_")
    }
    found = {key: record_at(AcrossRecord, path, problems) for key, path in places.items()}
    return {key: record for key, record in found.items() if record is not None}


def record_at(kind: type[Left], path: Path, problems: list[str]) -> Left | None:
    """A record, if there is one that can be read."""
    try:
        return kind.read(path) if path.is_file() else None
    except (OSError, UserError) as error:
        problems.append(f"What {path.name} says is left out: {error}")
        return None
