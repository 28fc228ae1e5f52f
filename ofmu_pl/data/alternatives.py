"""Other answers to the questions that must be forgotten, for methods that prefer them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import read_file, sound
from ofmu_pl.data.row_formats import json_lines, kind_of
from ofmu_pl.data.turns import learnt, turns_of
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import numbered_lines

REFUSALS = ["I do not know.", "I have no information about that.", "That is not known to me.", "I cannot say."]
KEPT = ("before", "between", "raw", "begun", "columns")  # fields beside the question that say how it is put


def other_answers(rows: list[Row], path: Path, seed: int, columns: dict[str, str]) -> list[Row]:
    """Give each row another answer from a file: a refusal, drawn by the seed, or the answer to its question.

    A table has rows of questions and answers, under these names or those of ``columns``.
    """
    if kind_of(path) in (".json", ".parquet", ".csv", ".tsv"):
        given = read_file(path, "data.alternatives")
    else:
        lines = [line.decode() for _, line in numbered_lines(path)] if path.is_file() else []
        if not lines:
            raise UserError(
                f"'{path}' is missing or empty: a method that prefers other answers needs `data.alternatives`, a text "
                "file of refusals (TOFU's idontknow.jsonl) or rows with a question and another answer."
            )
        if not lines[0].lstrip().startswith("{"):
            return with_refusals(rows, [line.rstrip("\r\n") for line in lines], seed)
        given = sound(str(path), "data.alternatives", *json_lines(path))
    if any(len(turns_of(row)) > 1 for row in rows):
        raise UserError(
            f"'{path}' has one answer a row, and conversations to forget have several: give one conversation for each "
            "answer, or a text file of refusals."
        )
    found = {question: answer for question, answer in given.named(columns).texts("question", "answer")}
    missing = [row["question"] for row in rows if row["question"] not in found]
    if missing:
        raise UserError(
            f"'{path}' has no answer to {len(missing)} of {len(rows)} forget questions (first: '{missing[0][:60]}'): "
            "give one row with question and answer for each."
        )
    return [_answered(row, found[row["question"]]) for row in rows]


def with_refusals(rows: list[Row], refusals: Sequence[str], seed: int) -> list[Row]:
    """Give each row a refusal as its answer: one of the list for each question, by seed and question alone."""
    found = []
    for row in rows:
        digest = hashlib.sha256(f"{seed} {row['question']}".encode()).digest()
        found.append(_answered(row, refusals[int.from_bytes(digest[:8], "big") % len(refusals)]))
    return found


def _answered(row: Row, answer: str) -> Row:
    """The row's questions with another answer, begun like the row's own where that is taken as it is."""
    space = " " if "raw" in row and row["answer"][:1].isspace() else ""
    other = {"question": row["question"], "answer": space + answer, **{name: row[name] for name in KEPT if name in row}}
    for side in {"before", "between"} & other.keys():  # the loss is on these turns, too
        other[side] = [x | {"content": answer} if learnt(x) else x for x in row[side]]
    return other
