"""The retrained model's scores: made from its folder or read from a file, and refused if they belong elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ofmu_pl.errors import UserError
from ofmu_pl.files import write_json
from ofmu_pl.metrics import Scores, SetScores
from ofmu_pl.networks.language import CausalLM
from ofmu_pl.networks.scoring import score_rows
from ofmu_pl.provenance import provenance


@dataclass
class Reference:
    """A retrained model's scores on the evaluation sets.

    Attributes:
        source: Where they come from.
        scores: By evaluation set.
        model: Provenance of the model, ``None`` if its folder has none (then nobody can check its split).
        evaluation: Provenance of the scores.
    """

    source: str
    scores: Scores
    model: dict[str, Any] | None
    evaluation: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write a file that another run can name as its reference."""
        scores = {
            name: {k: None if v is None else v.tolist() for k, v in vars(s).items()} for name, s in self.scores.items()
        }
        write_json(path, {"source": self.source, "model": self.model, "evaluation": self.evaluation, "scores": scores})


def load_reference(source: str, datamodule: Any, device: Any, max_new_tokens: int, progress: bool) -> Reference:
    """Read ``reference.json``, or score a model's folder (or hub id).

    Args:
        source: Path of a file that ``Reference.save`` wrote, or folder or hub id of a model.
        datamodule: Evaluation sets, encoder and hashes that the reference must share.
        device: Where to score a model.
        max_new_tokens: Length of its generations.
        progress: Show progress bars.

    Raises:
        UserError: It is missing or unreadable, or was made for another split, template or set of items.
    """
    path = Path(source).expanduser()
    if path.suffix == ".json":
        return _read(path, datamodule)
    model_facts = None
    if (path / "provenance.json").is_file():
        model_facts = json.loads((path / "provenance.json").read_text())
        _check(source, model_facts, datamodule, ("retain",))
        if model_facts.get("streams") != ["retain"]:
            raise UserError(
                f"The reference '{source}' was not trained on the retain split but on {model_facts.get('streams')}: "
                "give --evaluation.reference a model made by FineTune with split retain."
            )
    model = CausalLM(path=source).build(datamodule, exact=False).to(device)
    scores, _ = score_rows(
        model, datamodule.encoder, datamodule.evaluation_sets, max_new_tokens=max_new_tokens, progress=progress
    )
    return Reference(source, scores, model_facts, provenance(datamodule))


def _read(path: Path, datamodule: Any) -> Reference:
    try:
        content = json.loads(path.read_text())
        scores = {name: _set_scores(fields) for name, fields in content["scores"].items()}
        reference = Reference(str(path), scores, content["model"], content["evaluation"])
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(
            f"The reference '{path}' is missing or is no file that a run wrote as reference.json: give "
            "--evaluation.reference such a file, or the retrained model's folder."
        ) from error
    _check(str(path), reference.evaluation, datamodule, [k for k in datamodule.hashes if k.endswith("_eval")])
    if reference.model is not None:
        _check(str(path), reference.model, datamodule, ("retain",))
    return reference


def _set_scores(fields: dict[str, Any]) -> SetScores:
    arrays: dict[str, Any] = {k: None if v is None else np.array(v, dtype=float) for k, v in fields.items()}
    return SetScores(**arrays)


def _check(source: str, facts: dict[str, Any], datamodule: Any, splits: Any) -> None:
    """Refuse facts whose split hashes or template differ from the data at hand."""
    for split in splits:
        theirs, ours = facts.get("hashes", {}).get(split), datamodule.hashes[split]
        if theirs != ours:
            raise UserError(
                f"The reference '{source}' belongs to another {split} split (hash {theirs}, here {ours}): give the "
                "model retrained on this run's retain split, or set the --data options that it was made with."
            )
    if facts.get("template_hash") != datamodule.encoder.template_hash:
        raise UserError(
            f"The reference '{source}' was made with another prompt template (hash {facts.get('template_hash')}, here "
            f"{datamodule.encoder.template_hash}): use the same tokenizer, system prompt and max_length for both."
        )
