"""What is compared after the runs: difficulty against the drop in utility, embeddings against the retrained model's.

The paper's ``tab:udi-corr`` gives a utility to each sample, but a run has one: a point here is a draw of the forget
set, its difficulty the mean over the drawn samples.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ofmu_pl.analysis import analyse, spearman
from ofmu_pl.benchmark.grid import MODEL, Cell, model_folder
from ofmu_pl.benchmark.manifest import Place
from ofmu_pl.benchmark.pool import Job
from ofmu_pl.benchmark.specs import ANALYSIS as FOLDER
from ofmu_pl.benchmark.specs import Planned
from ofmu_pl.data.of_run import data_of_run
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import read_json, write_json
from ofmu_pl.support.records.manifest import Kind
from ofmu_pl.support.records.results import ANALYSIS, RESULTS, AnalysisRecord, Results
from ofmu_pl.support.version import key_of

TARGET, RETRAINED = "model.network.path", "evaluation.reference"  # options that name the two models
COMPARED: tuple[Kind, ...] = ("udi", "alignment", "ablation")  # kinds of experiments whose models are compared
FEWEST = 3  # fewest points of a correlation
Draw = dict[str, Any]  # scenario, seed, mean difficulty (`udi_mean`), and `utility_drop` by method


class Comparisons:
    """One comparison a scenario and seed, of all its methods' models, which an experiment of such a kind must name."""

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

    def jobs(self, name: str, cells: dict[Place, Cell]) -> dict[tuple[str, int], Job]:
        """The comparisons of an experiment's finished runs, by scenario and seed."""
        if self.experiments[name].kind not in COMPARED:
            return {}
        groups: dict[tuple[str, int], dict[str, Cell]] = {}
        for (_, scenario, method, seed), cell in cells.items():
            groups.setdefault((scenario, seed), {})[method] = cell
        return {group: self._job(name, *group, methods) for group, methods in groups.items()}

    def write(self, name: str, cells: dict[Place, Cell]) -> None:
        """Replace ``analysis.json`` of an experiment by what has been compared."""
        jobs = self.jobs(name, cells)
        found = {group: read_json(job.place / ANALYSIS) for group, job in jobs.items() if job.record is not None}
        place = self.folder / name / ANALYSIS
        if not found:
            place.unlink(missing_ok=True)
            return
        e = self.experiments[name]
        if e.kind == "udi":
            draws = [self._draw(name, *group, result["all"]["udi"], cells) for group, result in found.items()]
            content = difficulty_and_drop(draws)
        else:
            one = len(e.scenarios) == 1
            content = AnalysisRecord({str(k) if one else f"{s}/{k}": result for (s, k), result in found.items()})
        content.write(place)

    def _draw(self, name: str, scenario: str, seed: int, udi: float, cells: dict[Place, Cell]) -> Draw:
        """A point of the correlation of each method that has finished on this draw."""
        drops = {}
        for method in self.experiments[name].methods:
            cell = cells.get((name, scenario, method, seed))
            if cell is not None:
                results = Results.read(self.folder / cell.folder / "latest" / RESULTS)
                before, after = (x.get("model_utility", {}).get("value") for x in (results.before, results.metrics))
                drops[method] = None if before is None or after is None else before - after
        return {"scenario": scenario, "seed": seed, "udi_mean": udi, "utility_drop": drops}

    def _job(self, name: str, scenario: str, seed: int, methods: dict[str, Cell]) -> Job:
        one = next(iter(methods.values()))
        target, retrained = (one.word(one.options[option], self.folder) for option in (TARGET, RETRAINED))
        unlearned = {m: str(model_folder(self.folder, cell)) for m, cell in methods.items()}
        place = self.folder / FOLDER / name / scenario / f"seed_{seed}"
        config = str(self.folder / one.folder / "latest/config.yaml")
        key = key_of({m: cell.key for m, cell in methods.items()})[:16]
        call = partial(compare_models, target, retrained, unlearned, config, str(place))
        return Job(place, key, call, result=ANALYSIS)


def compare_models(target: str, retrained: str, unlearned: dict[str, str], config: str, place: str) -> None:
    """Write ``analysis.json`` into a folder with what ``analysis.analyse`` finds of models' folders.

    ``config`` is the ``config.yaml`` of one of their runs: all have its data.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = analyse(data_of_run(Path(config), target), target, retrained, unlearned, device=device)
    write_json(Path(place) / ANALYSIS, found)


def difficulty_and_drop(draws: list[Draw]) -> AnalysisRecord:
    """Draws, and over three or more of them Spearman's correlation by method."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for draw in draws:
        for method, drop in draw["utility_drop"].items():
            if drop is not None:
                pairs.setdefault(method, []).append((draw["udi_mean"], drop))
    found = {}
    for method, own in pairs.items():
        if len(own) >= FEWEST:
            c = spearman(*np.array(own).T)
            found[method] = {"rho": c.value, "low": c.interval[0], "high": c.interval[1], "p": c.p_value, "n": c.n}
    return AnalysisRecord(draws=draws, spearman=found)
