"""Other ways to ask for the same facts, as prompts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.text import Encoder
from ofmu_pl.support.errors import UserError

PAIR = re.compile(r"1\. (.+?) 2\. (.+)")
"""Two questions, or two answers, in one line."""
Pair = tuple[Row, Row]
"""A forgotten row and one to be kept."""


class Asked(NamedTuple):
    """The tokens of one prompt, and the answer, or what of it the prompt does not give."""

    prompt: list[int]
    answer: str


def plain(encoder: Encoder, row: Row) -> Asked:
    """The question as it is."""
    return Asked(encoder.row_prompt(row), row["answer"])


def with_examples(encoder: Encoder, row: Row, pool: Sequence[Row], number: int, room: int, seed: int) -> Asked:
    """The question after others of a pool with their answers; the first of them go where there is too little room."""
    drawn = [pool[i] for i in np.random.default_rng(seed).permutation(len(pool))[: number + 1]]
    others = [other for other in drawn if other["question"] != row["question"]][:number]
    for first in range(len(others) + 1):
        shown = [f"{other['question']}\n{other['answer']}\n\n" for other in others[first:]]
        prompt = encoder.row_prompt({**row, "question": "".join([*shown, row["question"]])})
        if len(prompt) <= room:
            break
    return Asked(prompt, row["answer"])


def with_prefix(encoder: Encoder, row: Row) -> Asked:
    """The question and the first half of the answer's words; an answer of one word is not begun."""
    words = row["answer"].split()
    half = len(words) // 2
    if not half:
        return plain(encoder, row)
    begun = encoder.encode_row({**row, "answer": " ".join(words[:half])})[0].input_ids
    return Asked(begun[: len(begun) - encoder.ends(begun)], " ".join(words[half:]))


def paired(encoder: Encoder, pair: Pair) -> list[Asked]:
    """Both questions in one prompt, ``1. ... 2. ...``, and the answer to each of them."""
    one, two = pair
    prompt = encoder.row_prompt({**one, "question": f"1. {one['question']} 2. {two['question']}"})
    return [Asked(prompt, one["answer"]), Asked(prompt, two["answer"])]


def read_pairs(folder: Path) -> list[Pair]:
    """Pairs of a forget and a retain question, as BLUR has them (Hu et al., s-huu/BLUR), in two files of lines.

    They are ``paired_forget_retain_questions.txt`` and ``paired_forget_retain_answers.txt``.

    Raises:
        UserError: A file cannot be read, a line is no pair, or the files have not the same number of lines.
    """
    pairs = []
    try:
        asked, said = (_lines(folder / f"paired_forget_retain_{what}.txt") for what in ("questions", "answers"))
        for (q1, q2), (a1, a2) in zip(asked, said, strict=True):
            pairs.append(({"question": q1, "answer": a1}, {"question": q2, "answer": a2}))
    except (OSError, ValueError) as error:
        raise UserError(f"'{folder}' holds no pairs ({error}): give attacks.pairs BLUR's folder of them.") from error
    return pairs


def _lines(path: Path) -> list[tuple[str, ...]]:
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").replace("\\'", "'").splitlines(), start=1):
        match = PAIR.fullmatch(line.strip())  # without BLUR's stray escapes
        if match is None:
            raise ValueError(f"line {number} of {path.name} is not '1. ... 2. ...'")
        pairs.append(match.groups())
    return pairs
