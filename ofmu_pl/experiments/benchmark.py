"""A grid of methods, scenarios and seeds: ordinary runs of ``fit``, each in its own folder, each run once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ofmu_pl import __version__
from ofmu_pl.errors import UserError
from ofmu_pl.experiments.criteria import validation_gap
from ofmu_pl.files import below, write_json
from ofmu_pl.report import report

CONTROL = "do_nothing"
"""Runs first in every scenario and seed: it needs both models trained from scratch, which the others then find."""


@dataclass
class Method:
    """One method of a benchmark.

    Attributes:
        overlay: Its configuration, put over the base; ``null``: the base's own method.
        options: Command-line options by key.
        search: An option and its candidates, the best of which (on ``search_seed``, by validation) is run.
        budgeted: Whether it runs until the budget is spent; methods of one iteration do not.
    """

    overlay: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    search: dict[str, list[Any]] = field(default_factory=dict)
    budgeted: bool = True


@dataclass
class Cell:
    """One run.

    Attributes:
        folder: Below the benchmark's folder.
        words: Its command line.
    """

    folder: str
    words: list[str]

    @property
    def key(self) -> str:
        """What it follows from: another command line or version of the code is another run."""
        return hashlib.sha256(json.dumps([self.words, __version__]).encode()).hexdigest()[:16]


def benchmark(
    name: str,
    base: str,
    methods: dict[str, Method],
    scenarios: dict[str, dict[str, Any]],
    seeds: list[int],
    gradients: float,
    options: dict[str, Any] | None = None,
    search_seed: int = 1000,
    workers: int = 2,
    logs: Path = Path("logs"),
) -> Path:
    """Run every method in every scenario with every seed, and report.

    Finished runs are not run again, also after a kill. A run that fails is reported and does not stop the rest. The
    settings of a method are searched on a seed of its own, with data that no reported run uses, by forget, retain and
    validation accuracy; every candidate spends what a reported run spends.

    Args:
        name: Folder under ``logs``.
        base: Configuration that all runs share.
        methods: By name; ``do_nothing`` must be among them.
        scenarios: Options by key, for example what is forgotten.
        seeds: Of the target, the split and the run alike.
        gradients: What a run may spend, in gradients of one batch's loss.
        options: Options of every run, by key.
        search_seed: Of the searches.
        workers: Runs at a time, each on one thread.
        logs: Root of all outputs.

    Returns:
        The benchmark's folder.

    Raises:
        UserError: A file is missing, a seed is there twice, a name leads out of the folder, or the methods lack the
            control.
    """
    if len(set(seeds)) < len(seeds) or search_seed in seeds:
        raise UserError(f"seeds {seeds} and search_seed {search_seed} must all differ: each is a sample of its own.")
    if CONTROL not in methods:
        raise UserError(f"The methods have no '{CONTROL}': add it, it is the control that every table needs.")
    for path in [base, *(m.overlay for m in methods.values() if m.overlay)]:
        if not Path(path).is_file():
            raise UserError(
                f"The configuration '{path}' does not exist: run from the project's root, or mend its name."
            )
    folder = below(logs, name, "name")
    for place in (*methods, *scenarios):
        below(folder, place, "The method or scenario")

    def cell(method: str, scenario: str, seed: int, choice: Any = None, tag: str = "") -> Cell:
        m = methods[method]
        words = ["fit", "--config", base, *(["-c", m.overlay] if m.overlay else [])]
        keyed = {**(options or {}), **scenarios[scenario], **m.options}
        if choice is not None:
            keyed[next(iter(m.search))] = choice
        for key, value in keyed.items():
            words += [f"--{key}", value if isinstance(value, str) else json.dumps(value)]
        if m.budgeted:
            words += ["--trainer.max_steps", str(int(gradients)), "--trainer.callbacks", "GradientBudget"]
            words += ["--trainer.callbacks.gradients", str(gradients)]
        words += ["--seed_everything", str(seed), "--data.split_seed", str(seed), "--trainer.enable_progress_bar=false"]
        place = f"{scenario}/{method}{tag}"
        words += ["--logs", str(logs), "--benchmark", f"{name}/{place}", "--method", f"seed_{seed}"]
        return Cell(f"{place}/seed_{seed}", words)

    with _Pool(folder, workers) as pool:
        every = [(s, seed) for s in scenarios for seed in (search_seed, *seeds)]
        pool.run([cell(CONTROL, s, seed) for s, seed in every], "models from scratch")
        candidates = {
            (m, s, i): cell(m, s, search_seed, c, f"-search-{i}")
            for m, method in methods.items()
            for s in scenarios
            for i, c in enumerate(next(iter(method.search.values()), []))
        }
        pool.run(list(candidates.values()), "search")
        chosen = {(m, s): _best(folder, m, s, methods[m], candidates) for m in methods for s in scenarios}
        write_json(folder / "search.json", {f"{s}/{m}": found for (m, s), found in chosen.items() if methods[m].search})
        final = {
            (m, s, seed): cell(m, s, seed, chosen[m, s]["choice"]) for m in methods for s in scenarios for seed in seeds
        }
        pool.run(list(final.values()), "runs")
    searched = {(m, s): {"choice": c["choice"], "scores": c["gaps"]} for (m, s), c in chosen.items() if c["gaps"]}
    entry = {
        "title": name,
        "kind": "table",
        "paper": [],
        "note": "",
        "metrics": [],  # the report's own choice
        "ours": "ofmu" if "ofmu" in methods else None,
        "gradients": gradients,
        "scenarios": scenarios,
        "methods": {
            m: {
                "overlay": method.overlay,
                "options": method.options,
                "searched": {s: searched[m, s] for s in scenarios if (m, s) in searched},
            }
            for m, method in methods.items()
        },
        "seeds": seeds,
        "cells": [_cell(folder, key, c, pool.failures) for key, c in final.items()],
    }
    content = {"name": name, "version": __version__, "date": time.strftime("%Y-%m-%d"), "experiments": {name: entry}}
    write_json(folder / "benchmark.json", content)
    report(folder)
    return folder


def _cell(folder: Path, key: tuple[str, str, int], cell: Cell, failures: dict[str, str]) -> dict[str, Any]:
    """One cell's line in ``benchmark.json``."""
    method, scenario, seed = key
    error = failures.get(cell.folder)
    status = "failed" if error else "finished" if read_results(folder / cell.folder) else "unfinished"
    place = {"scenario": scenario, "method": method, "seed": seed, "folder": cell.folder}
    return {**place, "status": status, "error": error}


def read_results(folder: Path) -> dict[str, Any] | None:
    """``results.json`` of a finished run; ``None`` if there is none."""
    path = folder / "latest" / "results.json"
    return json.loads(path.read_text()) if path.is_file() else None


def _best(folder: Path, method: str, scenario: str, m: Method, candidates: dict[Any, Cell]) -> dict[str, Any]:
    """The candidate with the smallest validation gap, and all gaps; ``None`` where nothing was searched."""
    values = next(iter(m.search.values()), [])
    gaps = []
    for i in range(len(values)):
        results = read_results(folder / candidates[method, scenario, i].folder)
        gaps.append(float("inf") if results is None else validation_gap(results))
    choice = values[min(range(len(gaps)), key=gaps.__getitem__)] if gaps else None
    return {"choice": choice, "gaps": dict(zip(map(str, values), gaps, strict=True))}


class _Pool(contextlib.AbstractContextManager):
    """Worker processes that stay, since importing takes longer than a small run."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.failures = folder, {}  # type: ignore[var-annotated]
        context = multiprocessing.get_context("spawn")
        self.executor = ProcessPoolExecutor(workers, context, initializer=_one_thread)

    def __exit__(self, *_: Any) -> None:
        self.executor.shutdown(cancel_futures=True)

    def run(self, cells: list[Cell], what: str) -> None:
        """All cells that have not finished before, with a bar and the time that is left."""
        todo = [c for c in cells if not _is_done(self.folder, c)]
        futures: dict[Future[str | None], Cell] = {self.executor.submit(_run, str(self.folder), c): c for c in todo}
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(file=sys.stderr)) as progress:
            task = progress.add_task(what, total=len(cells), completed=len(cells) - len(todo))
            for future in as_completed(futures):
                error = future.result()
                if error is not None:
                    self.failures[futures[future].folder] = error
                progress.advance(task)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _is_done(folder: Path, cell: Cell) -> bool:
    try:
        return json.loads((folder / cell.folder / "cell.json").read_text())["key"] == cell.key
    except (OSError, ValueError, KeyError):
        return False


def _run(folder: str, cell: Cell) -> str | None:
    """One run in this process, its output in ``log.txt``; the error's sentence if it fails."""
    from ofmu_pl.cli import main

    place = Path(folder) / cell.folder
    place.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with _output_to(place / "log.txt"):
        try:
            main(cell.words)
            error = None
        except SystemExit as stop:
            error = f"exit code {stop.code}" if stop.code else None
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
    if error is None:
        seconds = time.perf_counter() - started
        write_json(place / "cell.json", {"key": cell.key, "words": cell.words, "seconds": seconds})
        return None
    lines = [line for line in (place / "log.txt").read_text(errors="replace").splitlines() if "error:" in line]
    return lines[-1].removeprefix("ofmu_pl: error: ") if lines else error


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Send what the process prints to a file, libraries' output included."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with path.open("w") as file:
        for target in (1, 2):
            os.dup2(file.fileno(), target)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for source, target in zip(kept, (1, 2), strict=True):
                os.dup2(source, target)
                os.close(source)
