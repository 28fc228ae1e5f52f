"""The words of an answer that carry its fact, as tokens of any tokenizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ofmu_pl.data.encoded import Encoded, Row
from ofmu_pl.data.own_files import read_source
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.losses import IGNORED
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.variables import expanded


def entities_of(data: TextDataModule, path: str) -> list[Encoded]:
    """The forgotten rows that a file names an entity of, with the loss on the entity's tokens alone.

    The file has rows with ``question``, ``prefix`` (the answer up to the entity) and ``entity``, as
    ``forget10_filtered.json`` of gnueaj/unlearning-depth-score; other columns are passed over.

    Raises:
        UserError: The file cannot be read, or fits none of the rows.
    """
    named = {_plain(row.get("question")): row for row in read_source(expanded(path), "attacks.entities").rows}
    found = []
    for row in data.splits["forget"]:
        words = named.get(_plain(row.get("question")), {})
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


def _plain(question: Row | str | None) -> str:
    return " ".join(str(question).split())
