"""What a benchmark's jobs leave: ``cell.json`` of each that finished, ``failed.json``, and ``analysis.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from ofmu_pl.support.records.reading import Record, items, section

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

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        words = [str(word) for word in items(content, "words")]
        return cls(str(content["key"]), words, float(content["seconds"]), content.get("cpu_seconds"))


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

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        words, error = [str(word) for word in items(content, "words")], str(content["error"])
        seconds = (content.get(name) for name in ("seconds", "cpu_seconds"))
        return cls(str(content["key"]), words, error, bool(content["final"]), *seconds)


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

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        return cls(section(content, "seeds"), items(content, "draws"), section(content, "spearman"))
