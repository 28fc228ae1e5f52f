"""Which models are compared after the runs of an experiment, and what is written of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ofmu_pl.benchmark.analysis import compare_models, difficulty_and_drop, utility_drop
from ofmu_pl.benchmark.grid import HANDLE, MODEL, Cell, model_folder
from ofmu_pl.benchmark.manifest import Place
from ofmu_pl.benchmark.pool import Job
from ofmu_pl.benchmark.specs import ANALYSIS as FOLDER
from ofmu_pl.benchmark.specs import Planned
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import read_json
from ofmu_pl.support.records import ANALYSIS, AnalysisRecord, Kind
from ofmu_pl.support.variables import expanded
from ofmu_pl.support.version import key_of

TARGET, RETRAINED = "model.network.path", "evaluation.reference"
"""Options that name the two models."""
COMPARED: tuple[Kind, ...] = ("udi", "alignment", "ablation")
"""Kinds of experiments whose models are compared."""


class Comparisons:
    """One comparison a scenario and seed, of all its methods' models.

    Args:
        folder: Folder of the benchmark.
        experiments: By name.

    Raises:
        UserError: An experiment of such a kind does not name the models, or its runs leave none.
    """

    def __init__(self, folder: Path, experiments: dict[str, Planned]) -> None:
        self.folder, self.experiments = folder, experiments
        for name, e in experiments.items():
            given = {*e.options, *(p.gives for p in e.prepare.values())}
            for scenario, options in e.scenarios.items():
                lacking = {TARGET, RETRAINED} - given - set(options)
                if e.kind in COMPARED and (lacking or (e.options | options).get("export.folder") != MODEL):
                    raise UserError(
                        f"'{name}' is of kind {e.kind}, which compares models: give {TARGET} and {RETRAINED} by "
                        f"options or prepare (scenario '{scenario}'), and export.folder: {MODEL}."
                    )

    def number(self, name: str) -> int:
        """How many comparisons an experiment needs."""
        e = self.experiments[name]
        return len(e.scenarios) * len(e.seeds) if e.kind in COMPARED else 0

    def jobs(self, name: str, cells: dict[Place, Cell]) -> dict[tuple[str, int], Job]:
        """The comparisons of an experiment by scenario and seed.

        Args:
            name: Name of the experiment.
            cells: Its finished runs.
        """
        e = self.experiments[name]
        if e.kind not in COMPARED:
            return {}
        groups: dict[tuple[str, int], dict[str, Cell]] = {}
        for (_, scenario, method, seed), cell in cells.items():
            groups.setdefault((scenario, seed), {})[method] = cell
        return {group: self._job(name, *group, methods) for group, methods in groups.items()}

    def write(self, name: str, cells: dict[Place, Cell]) -> None:
        """``analysis.json`` of an experiment, from what has been compared.

        Args:
            name: Name of the experiment.
            cells: Its finished runs.
        """
        e = self.experiments[name]
        jobs = self.jobs(name, cells).items()
        found = {group: read_json(job.place / ANALYSIS) for group, job in jobs if job.record is not None}
        if not found:
            return
        if e.kind == "udi":
            draws = [
                {
                    "scenario": scenario,
                    "seed": seed,
                    "udi_mean": result["all"]["udi"],
                    "utility_drop": {
                        m: utility_drop(self.folder / cells[name, scenario, m, seed].folder / "latest")
                        for m in e.methods
                        if (name, scenario, m, seed) in cells
                    },
                }
                for (scenario, seed), result in found.items()
            ]
            content = AnalysisRecord(**difficulty_and_drop(draws))
        elif len(e.scenarios) == 1:
            content = AnalysisRecord({str(seed): result for (_, seed), result in found.items()})
        else:
            content = AnalysisRecord({f"{scenario}/{seed}": result for (scenario, seed), result in found.items()})
        content.write(self.folder / name / ANALYSIS)

    def _job(self, name: str, scenario: str, seed: int, methods: dict[str, Cell]) -> Job:
        one = next(iter(methods.values()))
        target, retrained = self._model(one, TARGET), self._model(one, RETRAINED)
        unlearned = {m: str(model_folder(self.folder, cell)) for m, cell in methods.items()}
        place = self.folder / FOLDER / name / scenario / f"seed_{seed}"
        config = str(self.folder / one.folder / "latest/config.yaml")
        key = key_of({m: cell.key for m, cell in methods.items()})[:16]
        call = partial(compare_models, target, retrained, unlearned, config, str(place))
        return Job(place, FOLDER, key, call, result=ANALYSIS)

    def _model(self, cell: Cell, option: str) -> str:
        value: Any = cell.options[option]
        handle = str(value).removeprefix(HANDLE)
        return str(model_folder(self.folder, cell.needs[handle])) if handle in cell.needs else str(expanded(value))
