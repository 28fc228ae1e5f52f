"""What makes two rows of text the same, for all that compares rows: overlaps, near misses, requests in turn."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable

from ofmu_pl.data.encoded import Row


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
