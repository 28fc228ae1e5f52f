"""From experiments to runs: each a command line and a key of its content, so that what was run is known again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from ofmu_pl.benchmark.specs import PREPARED, SEARCH, Planned, SearchedMethod, files
from ofmu_pl.support.files import file_hash
from ofmu_pl.support.variables import expanded
from ofmu_pl.support.version import key_of

CONTROL = "do_nothing"
MODEL = "hf"
"""Folder of a prepared run's model in its newest version."""
HANDLE = "prepared:"
"""What stands for the folder of a prepared model in options: the key of its run follows."""


@dataclass(frozen=True)
class Cell:
    """One run of ``fit``.

    Attributes:
        group: Runs that take about as long, for the time left.
        needs: Prepared runs by key.
    """

    folder: str
    group: str
    configs: tuple[str, ...]
    options: dict[str, Any]
    needs: dict[str, Cell]

    @cached_property
    def key(self) -> str:
        """The key of what the results follow from: files, options and prepared models, and ``RESULTS_VERSION``."""
        contents = [file_hash(Path(expanded(path))) for path in self.configs]
        return key_of([contents, self.options])[:16]

    def words(self, root: Path) -> list[str]:
        """The run's command line in a benchmark's folder."""
        words = ["fit"]
        for path in self.configs:
            words += ["--config", expanded(path)]
        for key, value in self.options.items():
            words += [f"--{key}", self._word(value, root)]
        place = Path(self.folder)
        words += ["--logs", str(root.parent), "--benchmark", f"{root.name}/{place.parent}", "--method", place.name]
        return [*words, "--trainer.enable_progress_bar=false"]

    def _word(self, value: Any, root: Path) -> str:
        if isinstance(value, str) and value.startswith(HANDLE):
            return str(model_folder(root, self.needs[value.removeprefix(HANDLE)]))
        value = expanded(value)
        return value if isinstance(value, str) else json.dumps(value)


def model_folder(root: Path, cell: Cell) -> Path:
    """Where a run leaves its model."""
    return root / cell.folder / "latest" / MODEL


class Grid:
    """All runs of a benchmark; what two experiments ask for alike is one run, in the folder of the first."""

    def __init__(self, experiments: dict[str, Planned]) -> None:
        self.experiments = experiments
        self._known: dict[str, Cell] = {}

    def first(self) -> list[Cell]:
        """What the others need: prepared models, and the control, which has the models from scratch made."""
        cells: dict[str, Cell] = {}
        for name, e in self.experiments.items():
            for scenario, seed in self._draws(name):
                wanted = [self.run(name, CONTROL, scenario, seed)] if CONTROL in e.methods else []
                wanted += [self._prepared(name, p, scenario, seed) for p in self._used(e, seed)]
                cells |= {cell.key: cell for cell in wanted}
        return list(cells.values())

    def prepared(self, name: str) -> list[tuple[str, Cell]]:
        """The runs that make models for an experiment, each with its name in ``prepare``."""
        found: dict[tuple[str, str], Cell] = {}
        for scenario, seed in self._draws(name):
            for p in self._used(self.experiments[name], seed):
                cell = self._prepared(name, p, scenario, seed)
                found[p, cell.key] = cell
        return [(p, cell) for (p, _), cell in found.items()]

    def _draws(self, name: str) -> list[tuple[str, int]]:
        """Scenarios with their seeds, that of a search included."""
        e, searched = self.experiments[name], {scenario for _, scenario in self.searches(name)}
        found = []
        for scenario in e.scenarios:
            found += [(scenario, seed) for seed in e.seeds]
            found += [(scenario, e.search_seed)] if scenario in searched else []
        return found

    def searches(self, name: str) -> list[tuple[str, str]]:
        """Methods of an experiment whose settings are searched in it, each with the scenario."""
        e = self.experiments[name]
        own = [scenario for scenario in e.scenarios if e.searched_in(name, scenario) == (name, scenario)]
        return list(product([m for m, method in e.methods.items() if method.candidates], own))

    def candidates(self, name: str, method: str, scenario: str) -> list[tuple[dict[str, Any], Cell]]:
        """Each candidate's options with its run."""
        e = self.experiments[name]
        return [
            (choice, self._cell(name, method, scenario, e.search_seed, choice, number))
            for number, choice in enumerate(e.methods[method].candidates)
        ]

    def run(self, name: str, method: str, scenario: str, seed: int, choice: dict[str, Any] | None = None) -> Cell:
        """A run that is reported, with the options that the search chose."""
        return self._cell(name, method, scenario, seed, choice or {}, None)

    def _cell(
        self, name: str, method: str, scenario: str, seed: int, choice: dict[str, Any], number: int | None
    ) -> Cell:
        e, m = self.experiments[name], self.experiments[name].methods[method]
        options = dict(e.options)
        needs = {}
        for prepared in self._used(e, seed):
            made = self._prepared(name, prepared, scenario, seed)
            needs[made.key] = made
            options[e.prepare[prepared].gives] = HANDLE + made.key
        options |= {**e.scenarios[scenario], **m.options, **choice}
        options |= dict.fromkeys(e.seeded, seed)
        if number is not None:
            options |= e.search_options
        budget = e.gradients if number is None or e.search_gradients is None else e.search_gradients
        options |= _budget(m, budget, validate=number is not None)
        tag = "" if number is None else f"-{number}"
        place = f"{name}/{scenario}/{method}{tag}/seed_{seed}"
        group = f"{name}/run" if number is None else f"{name}/{SEARCH}"
        folder = place if number is None else f"{SEARCH}/{place}"
        configs = (*files(e.base), *([m.overlay] if m.overlay else []))
        return self._shared(Cell(folder, group, configs, options, needs))

    @staticmethod
    def _used(e: Planned, seed: int) -> list[str]:
        """Prepared runs that a seed needs: a search does without those that its options replace."""
        return [p for p, run in e.prepare.items() if seed != e.search_seed or run.gives not in e.search_options]

    def _prepared(self, name: str, prepared: str, scenario: str, seed: int) -> Cell:
        e = self.experiments[name]
        p = e.prepare[prepared]
        own = {k: v for k, v in e.scenarios[scenario].items() if k.startswith("data.")} if "scenario" in p.each else {}
        options = {**p.options, **own, "export.folder": MODEL}
        # Not a draw of its own for each seed where it is made once for all: the first seed's.
        options |= dict.fromkeys(e.seeded, seed if "seed" in p.each else e.seeds[0])
        parts = [scenario] if "scenario" in p.each else []
        parts += [f"seed_{seed}"] if "seed" in p.each else ["once"]
        place = "/".join([PREPARED, name, prepared, *parts])
        return self._shared(Cell(place, f"{name}/{PREPARED}", files(p.base), options, {}))

    def _shared(self, cell: Cell) -> Cell:
        return self._known.setdefault(cell.key, cell)


def _budget(method: SearchedMethod, gradients: float, validate: bool) -> dict[str, Any]:
    """Options that end a run when its work is done, and have a candidate judged by rows that nothing reports."""
    callbacks: list[dict[str, Any]] = []
    options: dict[str, Any] = {}
    if method.budgeted:
        options["trainer.max_steps"] = int(gradients)  # no iteration takes less than one gradient
        callbacks.append({"class_path": "GradientBudget", "init_args": {"gradients": gradients}})
    if validate:
        callbacks.append({"class_path": "ValidationRows"})
    return options | ({"trainer.callbacks": callbacks} if callbacks else {})
