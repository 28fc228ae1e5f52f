"""Rows of text: what makes two the same, as tokens with the loss on the answer, in batches, and how long they are."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ofmu_pl.losses import IGNORED
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.sets import forgets

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


OTHER_ANSWERS = ("paraphrased_answer", "perturbed_answer")  # fields of a row that training does not read
SHORTEST = 16  # tokens of a piece of text that is worth a row


def piece(tokens: list[int]) -> Encoded:
    """A piece of a text, with the loss on every token but the first."""
    return Encoded(tokens, [IGNORED, *tokens[1:]], 1)


def shared(one: Sequence[object], other: Sequence[object]) -> int:
    """How many tokens two lists begin with alike, or letters two texts.

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
    ids = pad_sequence([torch.tensor(e.input_ids) for e in examples], batch_first=True, padding_value=pad_id)
    labels = pad_sequence([torch.tensor(e.labels) for e in examples], batch_first=True, padding_value=IGNORED)
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
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
    turns = [*row.get("before", []), *row.get("between", [])]
    said = [*(turn["content"] for turn in turns), row["question"], row["answer"], *row.get("columns", {}).values()]
    return tuple(map(same, said))


def first_copies(name: str, keys: Sequence[Hashable]) -> list[int]:
    """Positions of rows, known by their keys, without copies of rows before them, which tell nothing new.

    >>> first_copies("forget", "abacb")
    [0, 1, 3]
    """
    found: dict[Hashable, int] = {}
    for i, key in enumerate(keys):
        found.setdefault(key, i)
    if len(found) < len(keys):
        rank_zero_info(f"{len(keys) - len(found)} of {len(keys)} {name} rows are copies of others, and are left out.")
    return list(found.values())


@dataclass(frozen=True)
class Lengths:
    """The rows of a split or of an evaluation set, in tokens of prompt and answer.

    Attributes:
        rows: Number of rows.
        cut: Number of rows that lose tokens at their end.
        left_out: Pieces of texts that are too short to be rows.
        longest: Tokens of the longest row as it was written.
        read: Tokens of the longest row as a model reads it.
        top_token: The largest number of a token that a model reads; -1 without any.
    """

    rows: int
    cut: int = 0
    left_out: int = 0
    longest: int = 0
    read: int = 0
    top_token: int = -1

    @classmethod
    def of(cls, rows: Iterable[Iterable[Encoded]], left_out: int = 0) -> Lengths:
        """Measure rows, each of which is one conversation or more."""
        n = cut = longest = read = 0
        top = -1
        for conversations in rows:
            n, lost = n + 1, 0
            for e in conversations:
                lost = max(lost, e.lost)
                longest, read = max(longest, len(e.input_ids) + e.lost), max(read, len(e.input_ids))
                top = max(top, max(e.input_ids, default=-1))
            cut += lost > 0
        return cls(n, cut, left_out, longest, read, top)


def refuse_cut_forget_rows(lengths: Mapping[str, Lengths], max_length: int | None) -> None:
    """Refuse to measure, or to unlearn, only the beginning of what must be forgotten."""
    cut = {name: x for name, x in lengths.items() if forgets(name.removesuffix("_eval")) and x.cut}
    if cut:
        longest = max(x.longest for x in cut.values())
        counts = ", ".join(f"{x.cut} of {x.rows} in {name}" for name, x in cut.items())
        raise UserError(
            f"Rows that must be forgotten are longer than {max_length} tokens ({counts}; the longest has {longest}), "
            "and what lies beyond would be neither unlearned nor measured: set "
            f"`data.max_length={longest}` or more, or allow it by `data.allow_cut=true`."
        )


def unseen(lengths: Mapping[str, Lengths], max_length: int | None) -> str | None:
    """A sentence or two on what no method and no metric sees; ``None`` where they see everything."""
    cut = [f"{x.cut} of {x.rows} rows of {name} (the longest has {x.longest})" for name, x in lengths.items() if x.cut]
    out = [f"{x.left_out} beside {x.rows} rows of {name}" for name, x in lengths.items() if x.left_out]
    parts = [f"Cut at {max_length} tokens: {', '.join(cut)}"] if cut else []
    parts += [f"Left out, as texts or ends of texts under {SHORTEST} tokens: {', '.join(out)}"] if out else []
    return ". ".join(parts) + "." if parts else None
