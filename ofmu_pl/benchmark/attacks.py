"""Attacks on the finished runs of an experiment: the command ``attack``, a job a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ofmu_pl.benchmark.grid import Cell
from ofmu_pl.benchmark.manifest import Place
from ofmu_pl.benchmark.pool import Job
from ofmu_pl.benchmark.specs import ATTACKS as FOLDER
from ofmu_pl.benchmark.specs import Planned, files
from ofmu_pl.metrics.per_example import FEWEST
from ofmu_pl.support.files import file_hash
from ofmu_pl.support.records import ATTACKS
from ofmu_pl.support.variables import expanded
from ofmu_pl.support.version import key_of


class Attacks:
    """One job a finished run, and one a method for what is found over its runs alone; ``call`` does a command."""

    def __init__(self, folder: Path, experiments: dict[str, Planned], call: Callable[[list[str]], None]) -> None:
        self.folder, self.experiments, self.call = folder, experiments, call

    def jobs(self, name: str, cells: dict[Place, Cell]) -> dict[Place, Job]:
        """Make the attacks on each finished run of an experiment, by its place."""
        if not files(self.experiments[name].attacks):
            return {}
        return {place: self._job(name, "/".join([*place[1:3], f"seed_{place[3]}"]), [c]) for place, c in cells.items()}

    def over_runs(self, name: str, cells: dict[Place, Cell]) -> dict[str, Job]:
        """Make the attacks on the runs of each method together, by SCENARIO/METHOD, from what was found on each."""
        methods: dict[str, list[Cell]] = {}
        for (_, scenario, method, _), cell in cells.items():
            methods.setdefault(f"{scenario}/{method}", []).append(cell)
        return {place: self._job(name, place, runs) for place, runs in methods.items() if len(runs) >= FEWEST}

    def _job(self, name: str, place: str, runs: list[Cell]) -> Job:
        paths = [expanded(path) for path in files(self.experiments[name].attacks)]
        folders = [self.folder.absolute() / cell.folder / "latest" for cell in runs]
        words = ["attack"]
        for path in paths:
            words += ["--config", path]
        words += ["--runs", *map(str, folders)]
        key = key_of([[cell.key for cell in runs], [file_hash(Path(p)) for p in paths]])[:16]
        result = str(folders[-1] / ATTACKS)
        return Job(
            self.folder / FOLDER / name / place, f"{name}/{FOLDER}", key, partial(self.call, words), words, result
        )
