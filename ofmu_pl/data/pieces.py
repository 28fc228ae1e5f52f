"""Texts as rows: cut into pieces that a model can read, which lose no token."""

from collections.abc import Sequence

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import Rows
from ofmu_pl.data.row_encoder import first_tokens
from ofmu_pl.data.tokenizers import Tokenizer
from ofmu_pl.support.errors import UserError


def windows(ids: Sequence[int], size: int, stride: int | None = None) -> list[list[int]]:
    """Cut a document into pieces that hold each of its tokens: all of ``size`` tokens, unless it is shorter.

    >>> windows(range(7), 3), windows(range(5), 4, stride=2)
    ([[0, 1, 2], [3, 4, 5], [4, 5, 6]], [[0, 1, 2, 3], [1, 2, 3, 4]])
    """
    last = max(len(ids) - size, 0)
    return [list(ids[i : i + size]) for i in [*range(0, last, max(1, min(stride or size, size))), last]]


def shared_run(
    forget: Sequence[Sequence[int]], retain: Sequence[Sequence[int]], size: int = 30
) -> list[tuple[int, int]]:
    """Pairs of a forget and a retain document with a run of tokens in common, by number.

    >>> shared_run([[1, 2, 3], [7, 8]], [[5, 1, 2, 3], [7]], size=2)
    [(0, 0)]
    """
    runs: dict[tuple[int, ...], int] = {}
    for i, document in enumerate(forget):
        for run in windows(document, size, stride=1):
            runs.setdefault(tuple(run), i)
    found = set()
    for j, document in enumerate(retain):
        for run in windows(document, size, stride=1):
            if tuple(run) in runs:
                found.add((runs[tuple(run)], j))
    return sorted(found)


def pieces(tokenizer: Tokenizer, texts: Sequence[str], size: int | None) -> list[list[Row]]:
    """The rows that each text becomes, pieces with the tokenizer's first token before them.

    >>> from ofmu_pl.data.own_tokenizer import train_tokenizer
    >>> tokenizer = train_tokenizer(["abc"])
    >>> [[len(row["tokens"]) for row in rows] for rows in pieces(tokenizer, ["abcabc", "a"], size=2)]
    [[2], [1]]
    """
    if size is not None and size < 2:
        raise UserError(f"data.max_length is {size}, and one token is predicted by nothing: set it to 2 or more.")
    first = first_tokens(tokenizer)
    most = None if size is None else size - len(first)
    found = []
    for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []:
        rest = ids[len(first) :] if ids[: len(first)] == first else ids  # a text may begin with the token already
        parts = windows(rest, len(rest) if most is None else most)
        found.append([{"tokens": first + part} for part in parts])
    return found


def pieces_of(tokenizer: Tokenizer, rows: Rows, size: int | None) -> list[list[Row]]:
    """The ``pieces`` of each row's ``text``; texts of one token are refused."""
    found = pieces(tokenizer, [text for (text,) in rows.texts("text")], size)
    for i, own in enumerate(found):
        if len(own[0]["tokens"]) < 2:
            raise UserError(f"{rows.place(i)} has one token, which teaches nothing: remove it or join it to more.")
    return found
