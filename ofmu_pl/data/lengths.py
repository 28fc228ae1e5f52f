"""How long rows are in tokens: what is cut, what is left out, and what a model must be able to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ofmu_pl.data.encoded import Encoded
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.sets import forgets

SHORTEST = 16
"""Tokens of a piece of text that is worth a row."""


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
