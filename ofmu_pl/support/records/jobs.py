"""What a benchmark's jobs leave: ``cell.json`` of each that finished, ``failed.json``, and ``analysis.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ofmu_pl.support.records.reading import Record

FINISHED, FAILED, ANALYSIS = "cell.json", "failed.json", "analysis.json"


@dataclass
class JobRecord(Record):
    """``cell.json``: a job that has finished.

    Attributes:
        key: What its results follow from.
        words: Its command line; empty where it had none.
        seconds: Time that it took.
        cpu_seconds: CPU time of its process; ``None`` is not known.
    """

    key: str
    words: list[str]
    seconds: float
    cpu_seconds: float | None = None


@dataclass
class FailureRecord(Record):
    """``failed.json``: a job that has failed.

    Attributes:
        key: What its results would have followed from.
        words: Its command line; empty where it had none.
        error: Why it failed, one sentence.
        final: Whether it would fail again, since the failure follows from the key.
        seconds: Time that it took.
        cpu_seconds: CPU time of its process; ``None`` is not known.
    """

    key: str
    words: list[str]
    error: str
    final: bool
    seconds: float | None = None
    cpu_seconds: float | None = None


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
