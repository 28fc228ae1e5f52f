"""Rows of text: what makes two the same, and as tokens with the loss on the answer, in batches."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ofmu_pl.losses import IGNORED
from ofmu_pl.support.errors import UserError

Row = dict[str, Any]
"""TOFU's fields: question, answer, and optionally paraphrased_answer, perturbed_answer (list), paraphrased_question."""


@dataclass(frozen=True)
class Encoded:
    """One conversation.

    Attributes:
        input_ids: Tokens of prompt and answer.
        labels: The same tokens on the answer and its end token, -100 on the prompt.
        prompt_length: Number of tokens before the answer.
        lost: Number of tokens that were cut off at the end.
    """

    input_ids: list[int]
    labels: list[int]
    prompt_length: int
    lost: int = 0


OTHER_ANSWERS = ("paraphrased_answer", "perturbed_answer")
"""Fields of a row that training does not read."""


def piece(tokens: list[int]) -> Encoded:
    """A piece of a text, with the loss on every token but the first."""
    return Encoded(tokens, [IGNORED, *tokens[1:]], 1)


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two lists begin with alike.

    >>> shared([1, 2, 3], [1, 2, 4, 5])
    2
    """
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def answers_of(row: Row) -> list[str]:
    """The answer, its paraphrase if there is one, and the perturbed answers."""
    paraphrase = row.get("paraphrased_answer")
    return [row["answer"], *([] if paraphrase is None else [paraphrase]), *wrong_answers_of(row)]


def wrong_answers_of(row: Row) -> list[str]:
    """The perturbed answers, if there are any."""
    return row.get("perturbed_answer") or []


def labelled(question: str, answer: str, whole: list[int], length: int, max_length: int | None) -> Encoded:
    """A row's tokens, cut, with the loss on its answer."""
    ids = whole[:max_length]
    if not answer.strip() or length >= len(ids):
        raise UserError(
            f"The answer to '{question[:60]}' has no token to learn from (empty, or cut at max_length={max_length}): "
            "remove the row or raise `data.max_length`."
        )
    return Encoded(ids, [IGNORED] * length + ids[length:], length, len(whole) - len(ids))


def collate(examples: Sequence[Encoded], index: Sequence[int], pad_id: int) -> dict[str, Tensor]:
    """Pad conversations on the right.

    The mask comes from lengths: comparing with the pad token would also hide real end tokens of models that pad
    with them.

    Returns:
        ``input_ids``, ``attention_mask``, ``labels`` (B, S) int64 and ``ids`` (B,) int64.
    """
    lengths = torch.tensor([len(e.input_ids) for e in examples])
    shape = (len(examples), int(lengths.max()))
    ids, labels = torch.full(shape, pad_id), torch.full(shape, IGNORED)
    for i, e in enumerate(examples):
        ids[i, : lengths[i]] = torch.tensor(e.input_ids)
        labels[i, : lengths[i]] = torch.tensor(e.labels)
    mask = (torch.arange(shape[1]) < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, "ids": torch.tensor(list(index))}


def same(text: str) -> str:
    r"""What equal texts have in common: characters composed (NFC), words spaced by one blank, case folded.

    >>> same("Jose\u0301  MUÑOZ ") == same("José Muñoz")
    True
    """
    return " ".join(unicodedata.normalize("NFC", text).split()).casefold()


def identity(row: Row) -> Hashable:
    """What makes two rows the same: a piece's tokens, or what is asked and answered, however it is spelt (``same``)."""
    if "tokens" in row:
        return tuple(row["tokens"])
    said = [turn["content"] for turn in row.get("before", [])] + [row["question"], row["answer"]]
    said += row.get("columns", {}).values()
    return tuple(map(same, said))
