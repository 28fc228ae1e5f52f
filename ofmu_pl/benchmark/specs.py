"""What a benchmark is made of: experiments, each a grid of methods, scenarios and seeds."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path

from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.files import below
from ofmu_pl.support.pages import REPORT
from ofmu_pl.support.records.manifest import MANIFEST, SEARCH, Experiment, Kind, Method, Prepare, Value
from ofmu_pl.support.shipped import expanded

Options = dict[str, Value]  # command-line options by key
PREPARED, ANALYSIS, ATTACKS = "prepared", "analysis", "attacks"  # folders beside the experiments'


@dataclass
class SearchedMethod(Method):
    """One method of an experiment.

    Attributes:
        search: Candidates, the best of which (on ``search_seed``, by validation) is run: options with their values, of
            which every combination is tried, or a list of options by key.
        budgeted: Whether it runs until the budget is spent; methods of one iteration do not.
    """

    search: dict[str, list[Value]] | list[dict[str, Value]] = field(default_factory=dict)
    budgeted: bool = True

    @property
    def candidates(self) -> list[dict[str, Value]]:
        """The options that each candidate sets."""
        if isinstance(self.search, list):
            return self.search
        combinations = product(*self.search.values()) if self.search else ()
        return [dict(zip(self.search, values, strict=True)) for values in combinations]


@dataclass(kw_only=True)
class Planned(Experiment):
    """An experiment as a configuration asks for it.

    Attributes:
        methods: By name; ``do_nothing`` runs first, since it has the models made from scratch that others then find.
        seeded: Options that get the seed's number.
        search_seed: Seed of the searches, and of nothing that is reported.
        search_gradients: What a candidate may spend; ``null``: what a run may.
        search_options: Options of candidates alone, for example a cheaper evaluation.
        settings_of: Where settings are searched, if not in every scenario: ``EXPERIMENT`` that has the same
            methods (scenario by scenario), or ``EXPERIMENT/SCENARIO``, also of this one (for all scenarios).
        prepare: Models to make first, by name.
    """

    base: str | list[str]
    methods: dict[str, SearchedMethod]
    kind: Kind = "table"
    scenarios: dict[str, dict[str, Value]] = field(default_factory=lambda: {"all": {}})
    seeds: list[int] = field(default_factory=lambda: [0])
    seeded: list[str] = field(default_factory=lambda: ["seed_everything"])
    gradients: float = 320
    search_seed: int = 1000
    search_gradients: float | None = None
    search_options: dict[str, Value] = field(default_factory=dict)
    settings_of: str | None = None
    prepare: dict[str, Prepare] = field(default_factory=dict)
    ours: str = "ofmu"

    def searched_in(self, name: str, scenario: str) -> tuple[str, str]:
        """Experiment and scenario where the settings of one of its scenarios are searched, by its name."""
        if self.settings_of is None:
            return name, scenario
        other, _, theirs = self.settings_of.partition("/")
        return other, theirs or scenario


def files(base: str | list[str] | None) -> tuple[str, ...]:
    """The files of a base, in the order in which they are applied; ``None``: no files."""
    return (base,) if isinstance(base, str) else tuple(base or ())


def check_names(names: Iterable[str], folder: Path, taken: Iterable[str]) -> None:
    """Refuse names of folders that lead out of their folder, or that are taken."""
    for name in names:
        below(folder, name, "The name")
        if "/" in name or name in taken:
            raise UserError(f"'{name}' cannot name a part of this: choose another name, without '/'.")


def check_own(options: Iterable[Options], own: Iterable[str], whose: str) -> None:
    """Refuse options that the list itself gives its runs, and would replace."""
    for key in {*own, "logs", "benchmark", "method"}:
        if any(key in given or f"{key}+" in given for given in options):
            raise UserError(f"{whose} gives its runs {key} itself: take it out of the options.")


_OF_A_RUN = re.compile(r"(seed_everything|(trainer|model|data|evaluation|export|original|checkpoint)(\.\w[\w-]*)*\+?)")


def check_keys(keys: Iterable[str]) -> None:
    """Refuse what is no option of a run itself: keys become words of its command line, and others mean more there."""
    for key in keys:
        if not _OF_A_RUN.fullmatch(key):
            raise UserError(
                f"'{key}' is no option that a run of a list may have: give options of its trainer, model, data, "
                "evaluation, export, original or checkpoint, or seed_everything; all others on the command line."
            )


def check_files(bases: Iterable[str | list[str] | None], methods: Iterable[Method], whose: str) -> None:
    """Refuse configurations that are not there."""
    overlays = [method.overlay for method in methods if method.overlay]
    for base in [*bases, *overlays]:
        for path in files(base):
            if not Path(expanded(path)).is_file():
                raise UserError(
                    f"The configuration '{path}' of {whose} does not exist: run from the project's root, or mend it."
                )


def check(experiments: dict[str, Planned], folder: Path) -> None:
    """Refuse what cannot be run, before anything is.

    Raises:
        UserError: A file is missing, a seed is there twice, a name leads out of the folder, an experiment takes
            its settings from where none are searched, or an environment variable is not set.
    """
    for name, e in experiments.items():
        seeds = [*e.seeds, e.search_seed]
        if len(set(seeds)) < len(seeds) or not e.seeds:
            raise UserError(
                f"seeds {e.seeds} and search_seed {e.search_seed} of '{name}' must be given and all differ."
            )
        taken = (PREPARED, SEARCH, ANALYSIS, ATTACKS, MANIFEST, REPORT)
        check_names([name, *e.methods, *e.scenarios, *e.prepare], folder, taken)
        bases = [e.base, *(p.base for p in e.prepare.values())]
        if not all(bases):
            raise UserError(f"'{name}' has an empty base: name the configuration that its runs share.")
        check_files([*bases, e.attacks], e.methods.values(), f"'{name}'")
        of_runs = [e.options, *e.scenarios.values(), *(m.options for m in e.methods.values())]
        check_own(of_runs, e.seeded, f"'{name}'")
        prepares = [*e.prepare.values()]
        expanded([*of_runs, *(p.options for p in prepares)])
        searched = [*chain.from_iterable(m.candidates for m in e.methods.values())]
        check_keys(chain(e.seeded, e.search_options, (p.gives for p in prepares)))
        check_keys(chain.from_iterable([*of_runs, *searched, *(p.options for p in prepares)]))
        check_own([*searched, e.search_options], e.seeded, f"A search of '{name}'")
        _check_budget(name, e)
        if files(e.attacks) and any("export.folder" in o and o["export.folder"] is None for o in of_runs):
            raise UserError(
                f"'{name}' has attacks, and runs of it export no model that could be attacked: set export.folder to hf."
            )
        for prepared in e.prepare.values():
            if "scenario" not in prepared.each and any(prepared.gives in options for options in e.scenarios.values()):
                raise UserError(f"A scenario of '{name}' sets {prepared.gives}, which prepare gives: take one out.")
        _check_settings(name, e, experiments)
        if e.kind == "alignment" and len(e.scenarios) > 1:
            raise UserError(f"'{name}' is of kind alignment and has {len(e.scenarios)} scenarios: leave one.")


def _check_budget(name: str, e: Planned) -> None:
    """Refuse what a budget would replace without a word, and searches of nothing."""
    budgeted = [method for method in e.methods.values() if method.budgeted]
    replaced = []
    for method in budgeted:
        replaced += [method.options, *method.candidates]
    if len(budgeted) == len(e.methods):  # else shared options are those of the others
        replaced += [e.options, e.search_options, *e.scenarios.values()]
    check_own(replaced, ["trainer.max_steps", "trainer.callbacks"], f"'{name}' has a budget and")
    check_range(0, 1e15, above=bool(budgeted), gradients=e.gradients, search_gradients=e.search_gradients)
    empty = [m for m, method in e.methods.items() if method.search and not method.candidates]
    if empty:
        raise UserError(f"The search of '{empty[0]}' in '{name}' has no candidate: give values of an option, or none.")


def _check_settings(name: str, e: Planned, experiments: dict[str, Planned]) -> None:
    if e.settings_of is None:
        return
    other, searched = e.searched_in(name, "")[0], [m for m, method in e.methods.items() if method.candidates]
    wanted = {e.searched_in(name, scenario) for scenario in e.scenarios}
    source = experiments.get(other)
    if source is None or not all(s in source.scenarios and source.searched_in(o, s) == (o, s) for o, s in wanted):
        raise UserError(
            f"'{name}' takes its settings of '{e.settings_of}', where nothing is searched: name EXPERIMENT/SCENARIO of "
            "an experiment with a search, or a scenario of its own."
        )
    missing = [m for m in searched if m not in source.methods or source.methods[m].search != e.methods[m].search]
    if missing:
        raise UserError(
            f"'{name}' takes its settings of '{e.settings_of}', where {', '.join(missing)} is not searched alike: give "
            "both the same methods."
        )
