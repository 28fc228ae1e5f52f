"""``benchmark.json``: what was asked for, what was chosen, and where each run is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from ofmu_pl.support.records.reading import Entries, Record, entries, items, section, why

MANIFEST = "benchmark.json"
Kind = Literal["table", "ablation", "sweep", "draws", "probes", "udi", "alignment", "cost", "convergence"]
"""Kinds of experiments, which are shown differently; ``udi``, ``alignment``, ``ablation`` compare exported models."""
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass
class CellRecord:
    """One run of an experiment.

    Attributes:
        scenario: Name of what is forgotten.
        method: Name of its method.
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

    @classmethod
    def _of(cls, x: dict[str, Any]) -> CellRecord:
        errors = (x.get(name) for name in ("error", "attack_error"))
        scenario, method, folder, status = (str(x[name]) for name in ("scenario", "method", "folder", "status"))
        return cls(scenario, method, int(x["seed"]), folder, status, *(_line(error) for error in errors))


def _line(text: Any) -> str | None:
    return None if text is None else " ".join(str(text).split())


@dataclass
class MethodRecord:
    """One method of an experiment.

    Attributes:
        overlay: Configuration of the method, put over the base.
        options: Command-line options by key.
        searched: For each scenario ``choice``, ``scores`` by candidate, and ``of`` where they are another experiment's.
    """

    overlay: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    searched: Entries = field(default_factory=dict)


@dataclass
class MadeRecord:
    """One model that was made for runs.

    Attributes:
        folder: Folder of its run below the benchmark's; two experiments may share one.
        status: ``finished``, ``failed`` or ``unfinished``.
        error: Why its run failed, in one sentence.
        seconds: Time that its run took; ``None``: it has not finished.
    """

    folder: str
    status: str = "unfinished"
    error: str | None = None
    seconds: float | None = None


@dataclass
class PreparedRecord:
    """What makes models for the runs of an experiment; ``benchmark.specs.Prepare`` has the same names.

    Attributes:
        base: Its configuration, or a list of files, each put over those before.
        gives: The option of the experiment's runs that gets a model's folder.
        options: Command-line options by key.
        each: What it is made anew for.
        made: The models.
    """

    base: str | list[str]
    gives: str
    options: dict[str, Any] = field(default_factory=dict)
    each: list[str] = field(default_factory=list)
    made: list[MadeRecord] = field(default_factory=list)

    @classmethod
    def _of(cls, x: dict[str, Any]) -> PreparedRecord:
        made = [MadeRecord(str(m["folder"]), str(m["status"]), _line(m["error"]), m["seconds"]) for m in x["made"]]
        return cls(x["base"], str(x["gives"]), section(x, "options"), items(x, "each"), made)


@dataclass
class ExperimentRecord:
    """One experiment: what was asked for, and where its runs are. ``benchmark.specs.Experiment`` has the same names.

    Attributes:
        title: A line for people.
        kind: One of ``KINDS``.
        paper: Labels in the paper of the tables and figures that it stands for.
        note: How it differs from the paper.
        metrics: Columns of the table.
        ours: The method that the others are compared with.
        gradients: Budget of a run.
        base: Configuration that all runs share, or a list of files, each put over those before.
        options: Options of every run, by key.
        scenarios: Options by name.
        methods: Methods by name.
        seeds: Seeds of the runs.
        cells: All runs.
        attacks: Configurations of the attacks on every finished run; empty: none.
        attack_errors: Why attacks on the runs of a method together failed, in one sentence, by ``SCENARIO/METHOD``.
        prepare: What makes models for the runs, by name.
    """

    title: str
    kind: str
    paper: list[str]
    note: str
    metrics: list[str]
    ours: str | None
    gradients: float | None
    base: str | list[str] | None
    options: dict[str, Any]
    scenarios: dict[str, dict[str, Any]]
    methods: dict[str, MethodRecord]
    seeds: list[int]
    cells: list[CellRecord]
    attacks: list[str] = field(default_factory=list)
    attack_errors: dict[str, str] = field(default_factory=dict)
    prepare: dict[str, PreparedRecord] = field(default_factory=dict)

    @classmethod
    def _of(cls, name: str, entry: dict[str, Any]) -> ExperimentRecord:
        paper, ours = entry.get("paper") or [], entry.get("ours")
        return cls(
            title=str(entry.get("title") or name),
            kind=str(entry.get("kind", "table")),
            paper=[str(label) for label in ([paper] if isinstance(paper, str) else paper)],
            note=str(entry.get("note") or ""),
            metrics=[str(m) for m in entry.get("metrics") or []],
            ours=None if ours is None else str(ours),
            gradients=entry.get("gradients"),
            base=entry.get("base"),
            options=section(entry, "options"),
            scenarios={k: dict(v or {}) for k, v in entry["scenarios"].items()},
            methods={
                k: MethodRecord(m.get("overlay"), section(m, "options"), entries(m, "searched"))
                for k, m in ((k, v or {}) for k, v in entry["methods"].items())
            },
            seeds=items(entry, "seeds"),
            cells=[CellRecord._of(cell) for cell in entry["cells"]],
            attacks=[str(path) for path in items(entry, "attacks")],
            attack_errors={
                method: " ".join(str(why).split()) for method, why in section(entry, "attack_errors").items()
            },
            prepare={k: PreparedRecord._of(x) for k, x in entries(entry, "prepare").items()},
        )


@dataclass
class BenchmarkRecord(Record):
    """``benchmark.json``: what was asked for, what was chosen, and where each run is.

    Attributes:
        name: Name of the benchmark; empty where the file has none.
        version: Version of ofmu_pl that wrote it.
        results_version: ``support.version.RESULTS_VERSION`` of that version.
        date: Date at which it was written.
        experiments: Experiments by name.
        broken: Why an experiment of the file cannot be read, by name; the others are kept. It is never written.
    """

    name: str
    version: str | None
    results_version: int | None
    date: str
    experiments: dict[str, ExperimentRecord]
    broken: dict[str, str] = field(default_factory=dict)

    def _content(self) -> dict[str, Any]:
        content = super()._content()
        del content["broken"]
        return content

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        name, date = str(content.get("name") or ""), str(content.get("date") or "")
        found = cls(name, content.get("version"), content.get("results_version"), date, {})
        for experiment, entry in content["experiments"].items():
            try:
                found.experiments[experiment] = ExperimentRecord._of(experiment, entry)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                found.broken[experiment] = why(error)
        return found
