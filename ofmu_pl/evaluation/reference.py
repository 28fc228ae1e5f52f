"""The retrained model's scores: made from its folder or read from a file, and refused if they do not fit the run."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from torch import nn
from transformers import PreTrainedModel

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.data.tokenizers import refuse_other_tokens
from ofmu_pl.metrics import SetScores
from ofmu_pl.metrics.open_unlearning import read_eval
from ofmu_pl.networks.language import CausalLM
from ofmu_pl.networks.pretrained import OwnCodeError
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import read_json
from ofmu_pl.support.hub import local_folder
from ofmu_pl.support.keyed import KEY, hashed, key_of
from ofmu_pl.support.provenance import provenance
from ofmu_pl.support.records.reading import NewerError
from ofmu_pl.support.records.results import PROVENANCE, ModelRecord, ScoresRecord
from ofmu_pl.training.run import Run

Scored = dict[str, Any]  # scores by evaluation set: `SetScores` of text, `ImageScores` of images
Facts = dict[str, Any]  # provenance by name, which JSON can hold
LOADED = "a loaded model"  # a reference that was given in memory
RETRAIN = "retrain"
"""The word that stands, as a reference, for the model that ``original`` trains without the forget rows."""
SAYING_HOW = {
    "images": "the configuration's 'original' section (configs/digits.yaml has one)",
    "text": "--original.base MODEL, the model that target and retrained model are fine-tuned from",
}
"""How a user says how these are trained, by modality."""


@dataclass
class Reference(ScoresRecord):
    """A retrained model's scores on the evaluation sets, whose file another run can name as its reference.

    Without ``model``, the model's provenance, its split cannot be checked; another program's log has no ``evaluation``.
    """

    scores: Scored

    def _content(self) -> dict[str, Any]:
        return vars(self) | {"scores": {name: s.as_dict() for name, s in self.scores.items()}}

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        found = super()._of(content)
        found.scores = {name: SetScores.from_dict(fields) for name, fields in found.scores.items()}
        return found


def evaluation_facts(model: PreTrainedModel, datamodule: TextDataModule, scoring: Facts, weights: str) -> Facts:
    """Provenance of a model's scores; ``scoring`` says how it was scored, ``weights`` is the weights' hash."""
    name = getattr(model.config, "_name_or_path", "") or None
    return provenance(datamodule, weights=weights, model=name, **scoring)


def load_retrained(
    source: str | nn.Module, datamodule: TextDataModule, run: Run
) -> tuple[str, PreTrainedModel, Facts | None]:
    """Load a retrained model, or copy one in memory; in shards where the run's ranks hold them.

    Returns:
        What it is called, the model, and its provenance if that is known.
    """
    if isinstance(source, nn.Module):
        copied = copy.deepcopy(source).eval()
        run.shard(copied)
        return LOADED, copied, None
    local_folder(source, "reference")
    facts = read_model_facts(source)
    check_model(source, facts, datamodule)
    refuse_other_tokens("reference", source, datamodule.encoder)
    try:
        return source, run.build(CausalLM.plain(source), exact=False), facts
    except OwnCodeError as error:
        raise UserError(
            f"The reference '{source}' needs Python code of its own, which a reference never runs: `validate` it "
            "with --model.network.trust_remote_code true and without a reference, and give the reference.json that "
            "this leaves."
        ) from error


def read_model_facts(source: str) -> Facts | None:
    """Read ``provenance.json`` in a model's folder; ``None`` without such a file."""
    path = Path(source).expanduser() / PROVENANCE
    return ModelRecord.read(path).facts if path.is_file() else None


def check_comparable(whose: str, theirs: Facts, facts: Facts, remedy: str) -> None:
    """Refuse to compare with a model that was scored otherwise than this run's is (``Evaluation.scoring_facts``)."""
    for name, ours in facts.items():
        if theirs.get(name) != ours:
            raise UserError(f"{whose} was scored with {name} {theirs.get(name)}, this run has {ours}: {remedy}.")


def read_reference(path: Path, datamodule: TextDataModule) -> Reference:
    """Read ``reference.json``, or open-unlearning's ``TOFU_EVAL.json``; refuse them if they are of other data."""
    try:
        content = read_json(path)
        foreign = "forget_truth_ratio" in content
        if foreign:
            read, values = read_eval(content)
            reference = Reference(str(path), None, None, read, values)
            items = content["forget_Q_A_ROUGE"]["value_by_index"].items()
            texts = [(entry["input"], entry["ground_truth"]) for _, entry in sorted(items, key=lambda x: int(x[0]))]
        else:
            reference = replace(Reference.read(path), source=str(path))
    except NewerError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(
            f"The reference '{path}' is missing or is no file that a run wrote as reference.json (or open-unlearning "
            "as TOFU_EVAL.json): give --evaluation.reference such a file, or the retrained model's folder."
        ) from error
    if foreign:
        _check_texts(path, texts, datamodule)
    else:
        _check_own(reference, datamodule)
    return reference


def _check_own(reference: Reference, datamodule: TextDataModule) -> None:
    """Refuse a file of ours for other rows, template or model; drop facts' losses if its retain rows are others."""
    source, facts, scores = reference.source, reference.evaluation or {}, reference.scores
    _check_splits(source, facts, datamodule, [k for k in datamodule.hashes if k.endswith("_eval")])
    _check_template(source, facts, datamodule)
    check_model(source, reference.model, datamodule)
    most = facts.get("rows")
    for name, rows in datamodule.evaluation_sets.items():
        ids = evenly(range(len(rows)), most if isinstance(most, int) and most > 0 else len(rows))
        if name in scores and scores[name].ids.tolist() != list(ids):
            raise UserError(f"The reference '{source}' has other row numbers in '{name}': give the model's folder.")
    if facts.get("hashes", {}).get("retain") != datamodule.hashes["retain"]:
        scores |= {name: replace(s, facts_loss=None) for name, s in scores.items()}


def _check_texts(path: Path, theirs: list[tuple[str, str]], datamodule: TextDataModule) -> None:
    """Refuse open-unlearning's log if its texts, inputs and answers, are not this run's prompts and answers."""
    rows, encoder = datamodule.evaluation_sets["forget"], datamodule.encoder
    ours = [row["answer"].strip() for row in rows]
    if len(theirs) != len(rows) or not all(_same(path, x[1], y) for x, y in zip(theirs, ours, strict=True)):
        raise UserError(f"The reference '{path}' belongs to another forget_eval split: give this one's log.")
    prompt = encoder.tokenizer.decode(encoder.prompt(rows[0]["question"]), skip_special_tokens=True)
    if not _same(path, theirs[0][0], prompt):
        begins = f"'{_squeezed(theirs[0][0])[:60]}', here '{_squeezed(prompt)[:60]}'"
        raise UserError(
            f"The reference '{path}' has another prompt template ({begins}): use one tokenizer, system prompt and date."
        )


def _same(path: Path, theirs: str, ours: str) -> bool:
    """Whether a log's text, or its hash by the key beside the log, is the same as ours."""
    if theirs.startswith("hmac-sha256:"):
        try:
            return theirs == hashed(ours, key_of(path.parent))
        except (OSError, ValueError) as error:
            raise UserError(
                f"The reference '{path}' has hashes, and their key, {KEY}, is not beside it or is damaged: put it back."
            ) from error
    return _squeezed(theirs) == _squeezed(ours)


def _squeezed(text: str) -> str:
    return "".join(text.split())


def check_model(source: str, facts: Facts | None, datamodule: PairedDataModule) -> None:
    """Refuse a model that was not trained on this run's retain split alone, as far as it is known."""
    if facts is None:
        return
    _check_splits(source, facts, datamodule, ("retain",))
    if isinstance(datamodule, TextDataModule):
        _check_template(source, facts, datamodule)
    if facts.get("streams") != ["retain"]:
        fault = f"was not trained on the retain split but on {facts.get('streams')}"
        raise UserError(f"The reference '{source}' {fault}: give a model made by FineTune with split retain.")


def _check_splits(source: str, facts: Facts, datamodule: PairedDataModule, splits: Iterable[str]) -> None:
    for split in splits:
        theirs, ours = facts.get("hashes", {}).get(split), datamodule.hashes[split]
        fault = f"belongs to another {split} split (hash {theirs}, here {ours})"
        _require_same(source, fault, theirs, ours, "the data that it was made with")


def _check_template(source: str, facts: Facts, datamodule: TextDataModule) -> None:
    for name in ("date_string", "template_hash"):
        theirs, ours = facts.get(name), getattr(datamodule.encoder, name)
        fault = f"was made with another prompt template ({name} {theirs}, here {ours})"
        _require_same(source, fault, theirs, ours, "the same tokenizer, system prompt, date and max_length")


def _require_same(source: str, fault: str, theirs: object, ours: object, remedy: str) -> None:
    if theirs != ours:
        raise UserError(f"The reference '{source}' {fault}: give {remedy}.")
