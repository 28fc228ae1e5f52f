"""What runs, attacks and jobs leave beside their models: the numbers, what produced them, and what went wrong."""

from dataclasses import dataclass, field
from typing import Any, Self

from ofmu_pl.support.records.reading import Entries, Record

RESULTS = "results.json"  # the last file that a run writes: a run that has it has finished
PROVENANCE, REFERENCE = "provenance.json", "reference.json"
ATTACKS = "attacks.json"  # file of a run's folder
LINEAGE = "lineage.json"  # file of a run's folder: by stream, keyed hashes of all that its rows ask and answer
ACROSS = "across.json"  # file of the folder of a method's runs
NULL = ("_null_low", "_null_high")
"""Ends of names of figures of ``across.json``: where 95 % of a figure lie by chance alone."""
LOG = "log.txt"  # file of a benchmark's run with all that it prints
BEGUN, FINISHED, FAILED, ANALYSIS = "begun.json", "cell.json", "failed.json", "analysis.json"


@dataclass
class ReferenceRecord:
    """The retrained model that a run was compared with; provenance that is ``None`` is not known."""

    source: str
    model: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None
    metrics: Entries = field(default_factory=dict)


@dataclass
class Interim:
    """A measurement along the run."""

    step: int
    metrics: Entries


@dataclass
class Cost:
    """The cost of a run; ``None`` where it is not known."""

    training_seconds: float | None = None
    evaluation_seconds: float | None = None
    gradient_evaluations: float | None = None
    peak_memory_bytes: float | None = None


@dataclass
class Results(Record):
    """``results.json`` of one run.

    Attributes:
        definition: Name of the definition that the metrics are computed under.
        metrics: Metrics of the model after the run, or of the model that was only measured.
        before: Metrics of the model before the run; empty where nothing was unlearned.
        curves: Values of every iteration by name: ``step`` and ``value``.
        data: Rows that were cut or left out, by set.
        remark: What the data say that the numbers cannot show; ``None``: nothing.
        provenance: Where the numbers come from: code, versions, hashes of the data, method, seed, steps, weights.
    """

    metrics: Entries
    definition: str = "unknown"
    before: Entries = field(default_factory=dict)
    reference: ReferenceRecord | None = None
    history: list[Interim] = field(default_factory=list)
    curves: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    remark: str | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)


@dataclass
class ModelRecord(Record):
    """``provenance.json``: what a model was trained on. The file has the facts side by side.

    Attributes:
        facts: What is known, as ``support.provenance.provenance`` collects it; the hashes of the data are among it.
    """

    facts: dict[str, Any]

    @property
    def hashes(self) -> dict[str, str]:
        """Hashes of the data's splits, by name."""
        return dict(self.facts["hashes"])

    def _content(self) -> dict[str, Any]:
        return self.facts

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        hashes = dict(content["hashes"])
        return cls({name: fact for name, fact in content.items() if name != "schema"} | {"hashes": hashes})


@dataclass
class ScoresRecord(Record):
    """``reference.json``: a model's scores on the evaluation sets, which another run is compared with.

    Attributes:
        source: Source of the scores.
        model: Provenance of the model; ``None`` is not known.
        evaluation: Provenance of the scores; ``None`` is not known.
        scores: Scores by evaluation set, as ``SetScores.as_dict`` gives them.
        values: Totals by metric that its scores do not give: of another program's log, or of the model itself.
    """

    source: str
    model: dict[str, Any] | None
    evaluation: dict[str, Any] | None
    scores: Entries
    values: dict[str, float] = field(default_factory=dict)


@dataclass
class AttackRecord:
    """One attack on a run's models.

    Attributes:
        settings: Arguments of the attack, with its ``class``.
        seeds: Seeds that it was made with.
        x_label: What its curves run along.
        y_label: What its curves show.
        found: Name of the metric that says what it finds.
        metrics: Metrics by model, means over seeds; the unlearned model's have the retrained model's as their target.
        x: Places along the curves.
        curves: Means over seeds by model, at the places ``x``; ``None`` where a curve has no such place.
        returns: Share of the way from the retrained model to the target: ``value`` and ``interval``; empty where one of
            the two is missing or both are alike. ``untouched`` is the share without the attack, where that is known.
        gradients: Number of gradients of a batch's loss, by model, all seeds together.
        seconds: Time by model, all seeds together.
        broken: Models that the attack broke, each with a sentence.
        tests: What of the audit page's list of what was not tested it tests; empty: nothing, or not known.
        zero_control: Whether what it finds is 0 on the retrained model by construction.
        date: Day on which it was made, or found to be known, in UTC, as ``25 November 2026``.
        verdict: What follows from these (``metrics.verdicts``); empty in a file from before there were verdicts.
    """

    settings: dict[str, Any]
    seeds: list[int]
    x_label: str
    y_label: str
    found: str
    metrics: dict[str, Entries]
    x: list[Any] = field(default_factory=list)
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    returns: dict[str, Any] = field(default_factory=dict)
    gradients: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    tests: str = ""
    zero_control: bool = False
    date: str = ""
    verdict: str = ""


@dataclass
class AttacksRecord(Record):
    """``attacks.json`` of one run: ``remarks`` are on its models, ``not_made`` are remarks on attacks by name."""

    attacks: dict[str, AttackRecord]
    models: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    not_made: dict[str, str] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def all_remarks(self) -> list[str]:
        """The remarks on the models, then those on attacks."""
        return [*self.remarks, *self.not_made.values()]


@dataclass
class AcrossRecord(Record):
    """``across.json``: figures over the runs of one method, by attack and name; ``models`` is their number."""

    attacks: Entries
    runs: list[str] = field(default_factory=list)


@dataclass
class JobRecord(Record):
    """``cell.json``: a job that has finished; ``failed.json``: one that has failed.

    Attributes:
        key: What its results follow from.
        words: Its command line; empty where it had none.
        seconds: Time that it took.
        error: Why it failed, one sentence; ``None``: it has not.
        final: Whether it would fail again, since the failure follows from the key.
    """

    key: str
    words: list[str]
    seconds: float | None = None
    error: str | None = None
    final: bool = False


@dataclass
class AnalysisRecord(Record):
    """``analysis.json`` of an experiment: what its models were compared for.

    Attributes:
        seeds: What ``analysis.analyse`` found, by seed (``SCENARIO/SEED`` where there are several scenarios).
        draws: The difficulty of each draw of the forget set, and the drop in utility by method.
        spearman: Their correlation by method.
    """

    seeds: dict[str, Any] = field(default_factory=dict)
    draws: list[Any] = field(default_factory=list)
    spearman: dict[str, Any] = field(default_factory=dict)
