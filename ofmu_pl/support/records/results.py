"""``results.json``: the numbers of one run, and what produced them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ofmu_pl.support.records.reading import Entries, Record

RESULTS = "results.json"
"""The last file that a run writes: a run that has it has finished."""


@dataclass
class ReferenceRecord:
    """The retrained model that a run was compared with.

    Attributes:
        source: Source of its scores.
        model: Provenance of the model, ``None`` if it is not known.
        evaluation: Provenance of the scores, ``None`` if it is not known.
        metrics: Metrics of the model.
    """

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
        reference: The retrained model; ``None`` without one.
        history: Measurements along the run.
        curves: Values of every iteration by name: ``step`` and ``value``, or in older files a list of values.
        data: Rows that were cut or left out, by set.
        remark: What the data say that the numbers cannot show; ``None``: nothing.
        provenance: Where the numbers come from: code, versions, hashes of the data, method, seed, steps, weights.
        cost: What the run spent.
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

    def __post_init__(self) -> None:
        """Take the definition that older files gave with each metric."""
        if self.definition == Results.definition and self.metrics:
            self.definition = str(next(iter(self.metrics.values())).get("definition") or self.definition)
