"""Other ways to ask for the same facts, as prompts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.text import Encoder
from ofmu_pl.support.errors import UserError

PAIR = re.compile(r"1\. (.+?) 2\. (.+)")
"""Two questions, or two answers, in one line."""
Pair = tuple[Row, Row]
"""A forgotten row and one to be kept."""


@dataclass(frozen=True)
class Asked:
    """One prompt, and what an answer is compared with.

    Attributes:
        prompt: Tokens of the prompt.
        answer: The answer, or what of it the prompt does not give.
    """

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
        UserError: A file is missing, a line is no pair, or the files have not the same number of lines.
    """
    sides = []
    for what in ("questions", "answers"):
        path = folder / f"paired_forget_retain_{what}.txt"
        try:
            lines = path.read_text(encoding="utf-8").replace("\\'", "'").splitlines()  # BLUR's have stray escapes
        except (OSError, ValueError) as error:
            raise UserError(f"'{path}' cannot be read: give attacks.pairs BLUR's folder of pairs.") from error
        found = [PAIR.fullmatch(line.strip()) for line in lines]
        if None in found:
            raise UserError(f"Line {found.index(None) + 1} of '{path}' is no pair: write '1. ... 2. ...'.")
        sides.append([match.groups() for match in found if match])
    questions, answers = sides
    if len(questions) != len(answers):
        raise UserError(f"'{folder}' has {len(questions)} pairs of questions and {len(answers)} of answers: mend it.")
    pairs = []
    for asked, said in zip(questions, answers, strict=True):
        one, two = ({"question": q, "answer": a} for q, a in zip(asked, said, strict=True))
        pairs.append((one, two))
    return pairs
