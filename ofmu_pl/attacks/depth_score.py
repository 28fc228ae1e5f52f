"""Depth of unlearning: which layers still hold what the model no longer says?"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ofmu_pl.attacks.base import Attack, Finding, unless_finite
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data.encoded import Encoded, same
from ofmu_pl.data.own_files import read_source
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.losses import IGNORED, shifted
from ofmu_pl.metrics.depth import THRESHOLD, depth_scores, erasure_by_layer
from ofmu_pl.metrics.result import Metric
from ofmu_pl.networks.base import Batch
from ofmu_pl.networks.layers import all_hidden_states, layers_of, patched
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.records.models import RETRAINED, TARGET
from ofmu_pl.support.shipped import expanded

LEFT = Metric("depth_left", higher_is_better=False, group="attacks")
SCORE = Metric("unlearning_depth_score", higher_is_better=True, group="attacks")


class DepthScore(Attack):
    """Unlearning Depth Score (``metrics.depth``): put a model's hidden states into the target, layer by layer.

    Where the target then still says the entity, the layer still holds it. Found is ``1 - UDS``, so that 1 is what the
    target gives by construction, and 0 what the retrained model does. Only positions that predict the entity's tokens
    are replaced, as in the released code, which puts states after the final norm into the last layer, where ours are
    those before it. All three models must be at hand, with layers of one kind.

    Args:
        entities: File of the words that carry the facts, rows with ``question``, ``prefix`` and ``entity``; ``null``:
            the whole answers.
        rows: Most forgotten rows that are asked for; ``null``: all.

    Example:
        >>> DepthScore(rows=20).compares
        True
    """

    metrics = (LEFT, SCORE)
    x_label, y_label = "layer", "share of facts that the layer still holds"
    tests = "inside"
    compares, zero_control = True, True

    def __init__(self, entities: str | None = None, rows: int | None = 100) -> None:
        check_range(1, rows=rows)
        self.entities, self.rows, self.reads = entities, rows, [entities] if entities else []

    def run(self, subject: Subject, seed: int) -> Finding:
        """Take every layer from the retrained model and from the one under attack; nothing is drawn."""
        missing = [name for name in (TARGET, RETRAINED) if name not in subject.others]
        if missing:
            raise UserError(
                f"The attack '{self.name}' needs the target and the retrained model, and there is no "
                f"{' and no '.join(missing)} at hand: give it, or take the attack out of the list."
            )
        models: list[Any] = [subject.build(TARGET), subject.build(RETRAINED), subject.build()]
        if len({(len(layers_of(m)), m.config.get_text_config().hidden_size) for m in models}) > 1:
            raise UserError(
                f"The attack '{self.name}' puts layers of one model into another, and the three models differ in "
                "number or width of layers: give models of one architecture."
            )
        (target, retrained, model), control, ours = models, [], []
        data = subject.data
        rows = entities_of(data, self.entities) if self.entities else [data.encode(x) for x in data.splits["forget"]]
        asked = evenly(rows, self.rows or len(rows))  # with labels on what is asked for
        with torch.no_grad():
            for batch in subject.encoded_batches(asked, range(len(asked))):
                own = subject.recipe.sample_losses(target, batch)
                control.append(_lost(subject, target, retrained, batch) - own)
                ours.append(_lost(subject, target, model, batch) - own)
        both = [torch.cat(x, dim=1).T.double().cpu().numpy() for x in (control, ours)]  # (n, L)
        return self._finding(both[0], both[1])

    def _finding(self, control: np.ndarray, ours: np.ndarray) -> Finding:
        broken, ours = unless_finite(ours), np.nan_to_num(ours, nan=np.inf)  # what is no number holds nothing
        scores = depth_scores(control, ours)
        kept = scores[~np.isnan(scores)]
        if not len(kept):
            raise UserError(
                f"No layer of the target holds more of the forgotten rows than the retrained model's by {THRESHOLD} "
                "nats a token: give another retrained model."
            )
        left = 1 - erasure_by_layer(control, ours)
        holds = np.flatnonzero(~np.isnan(left))
        finding = Finding.of_rows(LEFT, 1 - kept, broken=broken, x=(holds + 1).tolist(), y=left[holds].tolist())
        score = Finding.of_rows(SCORE, kept)
        finding.figures.update(score.figures)
        finding.rows.update(score.rows)
        return finding


def _lost(subject: Subject, target: Any, source: Any, batch: Batch) -> Tensor:
    """Losses of the target with each layer's states from a source, (L, B) nats a token."""
    where = shifted(batch["labels"]) != IGNORED
    losses = []
    for layer, hidden in zip(layers_of(target), all_hidden_states(source, batch)[1:], strict=True):
        with patched(layer, hidden, where):
            losses.append(subject.recipe.sample_losses(target, batch))
    return torch.stack(losses)


def entities_of(data: TextDataModule, path: str) -> list[Encoded]:
    """The forgotten rows that a file names an entity of, with the loss on the entity's tokens alone.

    The file has rows with ``question``, ``prefix`` (the answer up to the entity) and ``entity``, as
    ``forget10_filtered.json`` of gnueaj/unlearning-depth-score; other columns are passed over.

    Raises:
        UserError: The file cannot be read, or fits none of the rows.
    """
    named = {same(str(row.get("question"))): row for row in read_source(expanded(path), "attacks.entities").rows}
    found = []
    for row in data.splits["forget"]:
        words = named.get(same(str(row.get("question"))), {})
        if words.get("entity"):
            found.append(narrowed(data.encode(row), str(words.get("prefix") or ""), words["entity"], data.tokenizer))
    rows = [e for e in found if e is not None]
    if not rows:
        raise UserError(
            f"attacks.entities names no entity of the forgotten rows of '{data.name}': give a file with their "
            "`question`, `prefix` and `entity`, or none, for whole answers."
        )
    return rows


def narrowed(encoded: Encoded, prefix: str, entity: str, tokenizer: Any) -> Encoded | None:
    """A row with labels on the tokens of its entity alone; ``None`` if the answer does not hold it."""
    places = [i for i, label in enumerate(encoded.labels) if label != IGNORED]
    ids = [encoded.labels[i] for i in places]
    texts = [tokenizer.decode(ids[:k], clean_up_tokenization_spaces=False) for k in range(len(ids) + 1)]
    before = texts[-1].find(prefix)
    begin = texts[-1].find(entity, before + len(prefix)) if before >= 0 else -1
    if begin < 0:
        return None
    end = begin + len(entity)
    # Half a character decodes to a mark of its own, so where a token begins is counted without such marks.
    inside = {
        place
        for place, left, right in zip(places, texts, texts[1:], strict=False)
        if len(left.rstrip("\ufffd")) < end and len(right) > begin
    }
    return replace(encoded, labels=[x if i in inside else IGNORED for i, x in enumerate(encoded.labels)])
