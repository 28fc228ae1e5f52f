"""From experiments to runs: each a command line and a key of its content, so that what was run is known again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from ofmu_pl.benchmark.specs import PREPARED, Options, Planned, SearchedMethod, check_keys, files
from ofmu_pl.support.files import file_hash
from ofmu_pl.support.records.manifest import SEARCH, Value
from ofmu_pl.support.shipped import expanded
from ofmu_pl.support.version import key_of

CONTROL = "do_nothing"
MODEL = "hf"  # folder of a prepared run's model in its newest version
HANDLE = "prepared:"  # what stands for the folder of a prepared model in options: the key of its run follows


@dataclass(frozen=True)
class Cell:
    """One run of ``fit``; ``needs`` has the prepared runs by key."""

    folder: str
    configs: tuple[str, ...]
    options: Options
    needs: dict[str, Cell]

    @cached_property
    def key(self) -> str:
        """The key of what the results follow from: files, options and prepared models, and ``RESULTS_VERSION``."""
        contents = [file_hash(Path(expanded(path))) for path in self.configs]
        return key_of([contents, self.options])[:16]

    def words(self, root: Path) -> list[str]:
        """The run's command line in a benchmark's folder; no value can be taken for an option."""
        check_keys(self.options)
        words = ["fit", *(f"--config={expanded(path)}" for path in self.configs)]
        words += [f"--{key}={self.word(value, root)}" for key, value in self.options.items()]
        place = Path(self.folder)
        return [*words, f"--logs={root.parent}", f"--benchmark={root.name}/{place.parent}", f"--method={place.name}"]

    def word(self, value: Value, root: Path) -> str:
        """An option's value as it stands in the command line, with the folder of a model that a run makes first."""
        for key, made in self.needs.items():  # any other text is the user's own
            if value == HANDLE + key:
                return str(model_folder(root, made))
        value = expanded(value)
        return value if isinstance(value, str) else json.dumps(value)


def model_folder(root: Path, cell: Cell) -> Path:
    """Where a run leaves its model."""
    return root / cell.folder / "latest" / MODEL


class Grid:
    """All runs of a benchmark; what two experiments ask for alike is one run, in the folder of the first."""

    def __init__(self, experiments: dict[str, Planned]) -> None:
        self.experiments = experiments
        self.size = 0  # of reported runs, and of attacks on them
        for e in experiments.values():
            self.size += len(e.scenarios) * len(e.methods) * len(e.seeds) * (2 if files(e.attacks) else 1)
        self._known: dict[str, Cell] = {}

    def first(self) -> list[tuple[str, str, Cell]]:
        """What the others need, by experiment and name: prepared models, and the control, which has models made."""
        found = []
        for name, e in self.experiments.items():
            searched = {scenario for _, scenario in self.searches(name)}
            for scenario, seed in product(e.scenarios, [*e.seeds, e.search_seed]):
                if seed == e.search_seed and scenario not in searched:
                    continue
                made = {CONTROL: self.run(name, CONTROL, scenario, seed)} if CONTROL in e.methods else {}
                made |= {p: self._prepared(name, p, scenario, seed) for p in self._used(e, seed)}
                found += [(name, what, cell) for what, cell in made.items()]
        return found

    def searches(self, name: str) -> list[tuple[str, str]]:
        """Methods of an experiment whose settings are searched in it, each with the scenario."""
        e = self.experiments[name]
        own = [scenario for scenario in e.scenarios if e.searched_in(name, scenario) == (name, scenario)]
        return list(product([m for m, method in e.methods.items() if method.candidates], own))

    def candidates(self, name: str, method: str, scenario: str) -> list[tuple[Options, Cell]]:
        """Each candidate's options with its run."""
        e = self.experiments[name]
        return [
            (choice, self.run(name, method, scenario, e.search_seed, choice, number))
            for number, choice in enumerate(e.methods[method].candidates)
        ]

    def run(
        self,
        name: str,
        method: str,
        scenario: str,
        seed: int,
        choice: Options | None = None,
        number: int | None = None,
    ) -> Cell:
        """A run with the options of a candidate: its number, or ``None`` of a run that is reported."""
        e, m = self.experiments[name], self.experiments[name].methods[method]
        options = dict(e.options)
        needs = {}
        for prepared in self._used(e, seed):
            made = self._prepared(name, prepared, scenario, seed)
            needs[made.key] = made
            options[e.prepare[prepared].gives] = HANDLE + made.key
        options |= {**e.scenarios[scenario], **m.options, **(choice or {})}
        options |= dict.fromkeys(e.seeded, seed)
        folder, gradients = f"{name}/{scenario}/{method}", e.gradients
        if number is not None:
            options |= e.search_options
            folder += f"-{number}"
            gradients = e.gradients if e.search_gradients is None else e.search_gradients
        options |= _budget(m, gradients, validate=number is not None)
        configs = (*files(e.base), *([m.overlay] if m.overlay else []))
        folder = f"{SEARCH}/{folder}" if seed == e.search_seed else folder  # the control's run, too, is not reported
        cell = Cell(f"{folder}/seed_{seed}", configs, options, needs)
        return self._known.setdefault(cell.key, cell)

    @staticmethod
    def _used(e: Planned, seed: int) -> list[str]:
        """Prepared runs that a seed needs: a search does without those that its options replace."""
        return [p for p, run in e.prepare.items() if seed != e.search_seed or run.gives not in e.search_options]

    def _prepared(self, name: str, prepared: str, scenario: str, seed: int) -> Cell:
        e = self.experiments[name]
        p = e.prepare[prepared]
        options = dict(p.options)
        parts = []
        if "scenario" in p.each:
            options |= {k: v for k, v in e.scenarios[scenario].items() if k.startswith("data.")}
            parts.append(scenario)
        options["export.folder"] = MODEL
        # Not a draw of its own for each seed where it is made once for all: the first seed's.
        options |= dict.fromkeys(e.seeded, seed if "seed" in p.each else e.seeds[0])
        parts += [f"seed_{seed}"] if "seed" in p.each else ["once"]
        place = "/".join([PREPARED, name, prepared, *parts])
        cell = Cell(place, files(p.base), options, {})
        return self._known.setdefault(cell.key, cell)


def _budget(method: SearchedMethod, gradients: float, validate: bool) -> Options:
    """Options that end a run when its work is done, and have a candidate judged by rows that nothing reports."""
    callbacks: list[Options] = []
    options: Options = {}
    if method.budgeted:
        options["trainer.max_steps"] = int(gradients)  # no iteration takes less than one gradient
        callbacks.append({"class_path": "GradientBudget", "init_args": {"gradients": gradients}})
    if validate:
        callbacks.append({"class_path": "ValidationRows"})
    return options | ({"trainer.callbacks": callbacks} if callbacks else {})
