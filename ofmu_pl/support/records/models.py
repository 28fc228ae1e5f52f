"""What lies beside a model: ``provenance.json``, what it was trained on, and ``reference.json``, how it scored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from ofmu_pl.support.records.reading import Entries, Record

PROVENANCE, REFERENCE = "provenance.json", "reference.json"


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

    @property
    def template_hash(self) -> str | None:
        """Hash of the prompt template; ``None`` where there are no prompts."""
        return self.facts.get("template_hash")

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
