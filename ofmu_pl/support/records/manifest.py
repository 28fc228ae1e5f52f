"""``benchmark.json``: what was asked for, what was chosen, and where each run is."""

from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from ofmu_pl.support.records.reading import Entries, Record, declared, why

MANIFEST = "benchmark.json"
SEARCH = "search"  # folder of a benchmark's runs by which settings are chosen; none of them is reported
Kind = Literal["table", "ablation", "sweep", "draws", "probes", "udi", "alignment", "cost", "convergence"]
"""Kinds of experiments, which are shown differently; ``udi``, ``alignment``, ``ablation`` compare exported models."""
KINDS: tuple[Kind, ...] = get_args(Kind)
Value = str | bool | int | float | list | dict | None  # type: ignore[type-arg]
"""Value of an option, as it is written. (Of a ``class_path`` below ``Any`` the parser would make a namespace with all
defaults of the class, which neither a key nor a command line can hold.)"""


@dataclass
class CellRecord:
    """One run of an experiment.

    Attributes:
        seed: Seed of target, split and run.
        folder: Folder of the run below the benchmark's, with ``latest`` in it; two cells may share one.
        status: ``finished``, ``failed`` or ``unfinished``.
        error: Why the run failed, in one sentence.
        attack_error: Why attacks on the finished run failed, in one sentence.
    """

    scenario: str
    method: str
    seed: int
    folder: str
    status: str = "unfinished"
    error: str | None = None
    attack_error: str | None = None


@dataclass
class Method:
    """One method.

    Attributes:
        overlay: Its configuration, put over the base; ``null``: the base's own method.
        options: Command-line options by key.
    """

    overlay: str | None = None
    options: dict[str, Value] = field(default_factory=dict)


@dataclass
class MethodRecord(Method):
    """One method of an experiment.

    Attributes:
        searched: For each scenario ``choice``, ``scores`` by candidate, and ``of`` where they are another experiment's.
    """

    searched: Entries = field(default_factory=dict)


@dataclass
class MadeRecord:
    """One model that was made for runs.

    Attributes:
        folder: Folder of its run below the benchmark's; two experiments may share one.
        status: ``finished``, ``failed`` or ``unfinished``.
    """

    folder: str
    status: str = "unfinished"
    error: str | None = None
    seconds: float | None = None


@dataclass
class Prepare:
    """A run whose exported model other runs need, made once for each scenario or seed or both.

    Attributes:
        base: Its configuration, or a list of files, each put over those before.
        gives: The option of the experiment's runs that gets the model's folder.
        options: Command-line options by key; an option of the scenario that starts with ``data.`` is heard, too.
        each: What it is made anew for.
    """

    base: str | list[str]
    gives: str
    options: dict[str, Value] = field(default_factory=dict)
    each: list[Literal["scenario", "seed"]] = field(default_factory=lambda: ["seed", "scenario"])


@dataclass
class PreparedRecord(Prepare):
    """The same with the models that were made."""

    made: list[MadeRecord] = field(default_factory=list)


@dataclass(kw_only=True)
class Experiment:
    """One table or figure: a grid of runs that share a configuration and a budget.

    Attributes:
        title: What it shows, for a reader.
        kind: How it is shown, one of ``KINDS``; ``udi``, ``alignment`` and ``ablation`` compare exported models.
        paper: Labels in the paper of the tables and figures that it stands for.
        note: What differs from the paper, in a sentence.
        metrics: Columns of the table.
        ours: The method that the others are compared with.
        gradients: Budget of a run, in gradients of one batch's loss.
        base: Configuration that all runs share, or a list of files, each put over those before.
        options: Options of every run, by key.
        scenarios: Options by name, for example what is forgotten.
        seeds: Seeds of the runs.
        attacks: Configurations of the command ``attack``, each put over those before, which is made on every finished
            run; ``null``: none.
    """

    title: str
    kind: str = "table"
    paper: list[str] = field(default_factory=list)
    note: str = ""
    metrics: list[str] = field(default_factory=list)
    ours: str | None
    gradients: float | None = None
    base: str | list[str] | None = None
    options: dict[str, Value] = field(default_factory=dict)
    scenarios: dict[str, dict[str, Value]]
    seeds: list[int] = field(default_factory=list)
    attacks: str | list[str] | None = None


@dataclass(kw_only=True)
class ExperimentRecord(Experiment):
    """An experiment with where its runs are.

    Attributes:
        attack_errors: Why attacks on the runs of a method together failed, in one sentence, by ``SCENARIO/METHOD``.
        prepare: What makes models for the runs, by name.
    """

    methods: dict[str, MethodRecord]
    cells: list[CellRecord]
    attack_errors: dict[str, str] = field(default_factory=dict)
    prepare: dict[str, PreparedRecord] = field(default_factory=dict)


@dataclass
class BenchmarkRecord(Record):
    """``benchmark.json``: what was asked for, what was chosen, and where each run is.

    Attributes:
        version: Version of ofmu_pl that wrote it.
        results_version: ``support.version.RESULTS_VERSION`` of that version.
        broken: Why an experiment of the file cannot be read, by name; the others are kept. It is never written.
    """

    name: str = ""
    version: str | None = None
    results_version: int | None = None
    date: str = ""
    experiments: dict[str, ExperimentRecord] = field(kw_only=True)
    broken: dict[str, str] = field(default_factory=dict, kw_only=True)

    def _content(self) -> dict[str, Any]:
        content = super()._content()
        del content["broken"]
        return content

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        found: Self = declared(cls, content | {"experiments": {}}, MANIFEST)
        for name, entry in content["experiments"].items():
            try:
                found.experiments[name] = declared(ExperimentRecord, {"title": name} | entry, name)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                found.broken[name] = why(error)
        return found
