"""What attacks found on a run, beside the retrained model and the target, and over the runs of a method alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ofmu_pl.support.records.reading import Entries, Record

ATTACKS = "attacks.json"
"""File of a run's folder."""
ACROSS = "across.json"
"""File of the folder of a method's runs."""


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
            the two is missing or both are alike.
        gradients: Number of gradients of a batch's loss, by model, all seeds together.
        seconds: Time by model, all seeds together.
        broken: Models that the attack broke, each with a sentence.
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


@dataclass
class AttacksRecord(Record):
    """``attacks.json`` of one run."""

    attacks: dict[str, AttackRecord]
    models: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)


NULL = ("_null_low", "_null_high")
"""Ends of names of figures of ``across.json``: where 95 % of a figure lie by chance alone."""


@dataclass
class AcrossRecord(Record):
    """``across.json`` of one method.

    Attributes:
        attacks: Figures by attack and name; ``models`` is the number of runs that they are over.
        runs: Folders of these runs.
    """

    attacks: dict[str, dict[str, Any]]
    runs: list[str] = field(default_factory=list)
