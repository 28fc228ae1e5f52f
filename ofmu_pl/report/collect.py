"""Reads a folder of runs. What is half-written, doubled, mixed or broken becomes a sentence; the rest is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ofmu_pl.metrics.functional import forget_quality_distance
from ofmu_pl.report.checks import check, drop_doubles, set_apart
from ofmu_pl.report.runs import Experiment, Run, default_metrics, number
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below, read_json

MANIFEST = "benchmark.json"
KINDS = ("table", "ablation", "sweep", "draws", "probes", "udi", "alignment", "cost", "convergence")
DEPTH = 4
"""Folders between a benchmark and a run's versions, at most: EXPERIMENT/SCENARIO/METHOD/seed_N."""


@dataclass
class Collection:
    """Everything that was found.

    Attributes:
        folder: Where.
        name: Of the benchmark.
        date: Of the manifest; empty without one.
        experiments: In order.
        problems: One sentence each.
    """

    folder: Path
    name: str
    date: str = ""
    experiments: list[Experiment] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def collect(folder: Path, foreign: list[Path] | None = None) -> Collection:
    """Experiments of a benchmark (``benchmark.json``), or of a folder of ordinary runs.

    Ordinary runs are ``[SCENARIO/]METHOD/[seed_N/]version_K``; the one that ``latest`` points at counts.

    Args:
        folder: For example logs/quickstart.
        foreign: Folders of open-unlearning's evaluations, added as rows to the main tables of text.

    Raises:
        UserError: There is neither a benchmark nor a finished unlearning run.
    """
    found = Collection(folder, folder.resolve().name)
    manifest = _read(folder / MANIFEST, found.problems) if (folder / MANIFEST).is_file() else None
    if isinstance(manifest, dict) and isinstance(manifest.get("experiments"), dict):
        found.name, found.date = str(manifest.get("name", found.name)), str(manifest.get("date", ""))
        for name, entry in manifest["experiments"].items():
            try:
                found.experiments.append(_described(folder, str(name), entry, found.problems))
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                found.problems.append(
                    f"The experiment '{name}' in {MANIFEST} is not described as a benchmark does "
                    f"({type(error).__name__}: {error}), so it is left out."
                )
    else:
        if (folder / MANIFEST).is_file():
            found.problems.append(f"{MANIFEST} lists no experiments, so the runs below it are taken as they lie.")
        experiment = _walked(folder, found)
        if experiment is None:
            raise UserError(
                f"There is no finished unlearning run below '{folder}' (METHOD/latest/results.json): "
                "give the benchmark's folder, for example logs/quickstart, after a run of fit has ended."
            )
        found.experiments.append(experiment)
    rows = dict(filter(None, (_foreign(path, found.problems) for path in foreign or [])))
    for experiment in found.experiments:
        drop_doubles(experiment, found.problems)
        set_apart(experiment, found.problems)
        check(experiment, found.problems)
        is_text = experiment.entry("forget_truth_ratio") or experiment.entry("forget_Q_A_Prob")
        if experiment.kind == "table" and is_text:
            experiment.foreign = rows
    return found


def _described(folder: Path, name: str, entry: dict[str, Any], problems: list[str]) -> Experiment:
    """An experiment as the manifest says."""
    kind = str(entry.get("kind", "table"))
    if kind not in KINDS:
        problems.append(f"The experiment '{name}' is of an unknown kind '{kind}': its tables are shown, no figures.")
    runs = [_run(folder, cell, problems) for cell in entry["cells"]]
    results = [r.results for r in runs if r.results is not None]
    analysis = below(folder, name, "The experiment") / "analysis.json"
    content = _read(analysis, problems) if analysis.is_file() else None
    paper = entry.get("paper") or []
    return Experiment(
        name=name,
        title=str(entry.get("title") or name),
        kind=kind,
        paper=[str(label) for label in ([paper] if isinstance(paper, str) else paper)],
        note=str(entry.get("note") or ""),
        metrics=[str(m) for m in (entry.get("metrics") or ([] if kind == "cost" else default_metrics(results)))],
        ours=None if entry.get("ours") is None else str(entry["ours"]),
        gradients=number(entry.get("gradients")),
        scenarios={str(k): dict(v or {}) for k, v in entry["scenarios"].items()},
        methods={str(k): _method(v or {}) for k, v in entry["methods"].items()},
        runs=runs,
        options=dict(entry.get("options") or {}),
        analysis=content if isinstance(content, dict) else None,
    )


def _method(entry: dict[str, Any]) -> dict[str, Any]:
    searched = {str(k): dict(v) for k, v in (entry.get("searched") or {}).items()}
    return {"options": dict(entry.get("options") or {}), "searched": searched}


def _run(folder: Path, cell: dict[str, Any], problems: list[str]) -> Run:
    run = Run(
        *(str(cell["scenario"]), str(cell["method"]), int(cell["seed"]), str(cell["folder"]), str(cell["status"])),
        error=None if cell.get("error") is None else " ".join(str(cell["error"]).split()),
    )
    try:
        place = below(folder, run.folder, "The run")
    except UserError as error:
        run.status, run.error = "failed", str(error)
        return run
    if run.status != "finished":
        return run
    path = place / "latest" / "results.json"
    if not path.is_file():
        run.status, run.error = "unfinished", "its results.json is missing although it is said to have finished"
        return run
    run.results = _results(path, problems)
    if run.results is None:
        run.status, run.error = "unfinished", "its results.json cannot be read"
        return run
    seed = run.fact("seed")
    if seed is not None and seed != run.seed:
        problems.append(f"{run.folder} is listed as seed {run.seed} but its results say seed {seed}.")
    words = _read(place / "cell.json", problems) if (place / "cell.json").is_file() else {}
    run.words = [str(w) for w in words.get("words", [])] if isinstance(words, dict) else []
    return run


def _walked(folder: Path, found: Collection) -> Experiment | None:
    """One experiment of all ordinary runs below a folder; ``None`` if none has finished."""
    runs: list[Run] = []
    places = {v.parent for d in range(1, DEPTH + 1) for v in folder.glob("*/" * d + "version_*") if v.is_dir()}
    for place in sorted(places):
        *scenario, method = [p for p in place.relative_to(folder).parts if not p.startswith("seed_")] or [place.name]
        if "-search-" in method:
            continue
        newest = max(place.glob("version_*"), key=lambda p: p.stat().st_mtime)
        if not (place / "latest" / "results.json").is_file():
            name = f"{place.relative_to(folder)}/{newest.name}"
            if not list(place.glob("version_*/results.json")):
                found.problems.append(f"The run {name} is half-written: left out.")
            elif (place / "latest").is_symlink():  # without it, it was only validated, which is no run
                name = f"{place.relative_to(folder)}/{(place / 'latest').readlink().name}"
                found.problems.append(f"The run {name}, which latest points at, has no results.json: left out.")
            continue
        results = _results(place / "latest" / "results.json", found.problems)
        if results is None or not results.get("before"):  # originals were trained, they did not unlearn
            continue
        if not (newest / "results.json").is_file():
            shown = (place / "latest").resolve().name
            found.problems.append(
                f"The run {place.relative_to(folder)}/{newest.name} is half-written: {shown} is shown instead."
            )
        seed = (results.get("provenance") or {}).get("seed")
        name = "/".join(scenario) or found.name
        relative = place.relative_to(folder).as_posix()
        runs.append(Run(name, method, seed if isinstance(seed, int) else 0, relative, "finished", results=results))
    if not runs:
        return None
    methods = list(dict.fromkeys(r.method for r in runs))
    is_ofmu = [r.method for r in runs if r.fact("method") == "OFMU"]
    return Experiment(
        name="runs",
        title=f"Runs in {found.name}",
        kind="table",
        paper=[],
        note="Ordinary runs, found by their folders: what they share is not known.",
        metrics=default_metrics([r.results for r in runs if r.results]),
        ours="ofmu" if "ofmu" in methods else next(iter(is_ofmu), None),
        gradients=None,
        scenarios={r.scenario: {} for r in runs},
        methods={m: {} for m in methods},
        runs=runs,
    )


def _results(path: Path, problems: list[str]) -> dict[str, Any] | None:
    """``results.json``, if it is one."""
    content = _read(path, problems)
    if content is None:
        return None
    if not _is_results(content):
        problems.append(f"{path} is no results.json of a run: left out.")
        return None
    return dict(content)


def _is_results(x: Any) -> bool:
    """Whether everything that is read from it later is of the kind that it should be."""
    if not isinstance(x, dict) or not isinstance(x.get("metrics"), dict):
        return False
    parts = [x.get(k) or {} for k in ("reference", "provenance", "cost", "curves")]
    history = x.get("history") or []
    if not all(isinstance(part, dict) for part in parts) or not isinstance(history, list):
        return False
    measured = [x["metrics"], x.get("before") or {}, parts[0].get("metrics") or {}]
    measured += [h.get("metrics") or {} if isinstance(h, dict) else None for h in history]
    return all(isinstance(m, dict) and all(isinstance(e, dict) for e in m.values()) for m in measured)


def _read(path: Path, problems: list[str]) -> Any:
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        problems.append(f"{path} cannot be read ({' '.join(str(error).split())}): left out.")
        return None


def _foreign(path: Path, problems: list[str]) -> tuple[str, tuple[str, dict[str, float]]] | None:
    """A row by its folder's name: totals of ``TOFU_EVAL.json`` and ``TOFU_SUMMARY.json``, and D, which neither has."""
    values: dict[str, float] = {}
    for name in ("TOFU_EVAL.json", "TOFU_SUMMARY.json"):
        content = _read(path / name, problems) if (path / name).is_file() else None
        if not isinstance(content, dict):
            continue
        totals = {k: number(v.get("agg_value") if isinstance(v, dict) else v) for k, v in content.items()}
        values |= {k: v for k, v in totals.items() if v is not None}
        ratios = content.get("forget_truth_ratio")
        items = ratios.get("value_by_index") if isinstance(ratios, dict) else None
        if items and "forget_quality" in values:
            values["forget_quality_D"] = forget_quality_distance(values["forget_quality"], len(items))
    if values:
        return path.resolve().name, ("open_unlearning", values)
    problems.append(
        f"The foreign folder '{path}' has no readable TOFU_SUMMARY.json or TOFU_EVAL.json of open-unlearning: left out."
    )
    return None
