"""Rows of one's own in the forms that are known, checked and brought to the fields that everything else reads."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.identity import same
from ofmu_pl.data.own_files import Rows, Source, read_source, upper
from ofmu_pl.data.row_numbers import forgotten_rows
from ofmu_pl.support.errors import UserError

FORMS = {
    "messages": ("messages",),
    "conversations": ("conversations",),
    "question": ("question", "answer"),
    "prompt": ("prompt", "completion"),
    "text": ("text",),
}
"""Columns of each form by the first of them, which tells the form."""
ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}
"""Our names of roles by others' (ShareGPT's, Gemini's)."""
EXTRAS = ("paraphrased_answer", "paraphrased_question", "perturbed_answer")
"""Columns that switch further metrics on where every row has them."""


def form_of(rows: Rows, columns: dict[str, str]) -> str:
    """The form of a source's rows.

    Args:
        rows: With our names of columns.
        columns: What the user named, which decides where rows have columns of several forms.

    Raises:
        UserError: No form fits, or rows differ in form.
    """
    order = sorted(FORMS, key=lambda form: form not in columns)
    forms = [next((form for form in order if form in row), None) for row in rows.rows]
    known = ", ".join(rows.rows[0])
    if forms[0] is None:
        wanted = ", ".join("/".join(names) for names in FORMS.values())
        raise UserError(
            f"'{rows.source}' has the columns {known} and none of the forms {wanted}: say which column is which, for "
            f"example `columns={{question: {next(iter(rows.rows[0]), 'NAME')}, answer: NAME}}`."
        )
    for i, form in enumerate(forms):
        if form != forms[0]:
            has = f"a '{form}'" if form else f"no '{forms[0]}'"
            raise UserError(
                f"{upper(rows.place(i))} has {has}, and the rows before it have '{forms[0]}': rows may differ in form "
                "between files, not inside one, so make files of them."
            )
    return "messages" if forms[0] == "conversations" else str(forms[0])


def sound_rows(rows: Rows, form: str, places: Sequence[str] = ()) -> list[Row]:
    """The rows with the fields that encoders and metrics read.

    ``question`` and ``answer``; ``before``, the turns before the last question; ``raw`` where the question is the
    prompt itself, without a template; ``columns``, what fills other places of the template, as ``{input}``; of a
    document ``text`` alone.

    Raises:
        UserError: A row lacks a text, its messages are no conversation that ends with the assistant, or no row has a
            column that a place names.
    """
    found = []
    for i, row in enumerate(rows.rows):
        place = upper(rows.place(i))
        if form == "messages":
            found.append(_conversation(row.get("messages", row.get("conversations")), place))
            continue
        for column in FORMS[form]:
            if not _is_text(row.get(column)):
                raise UserError(
                    f"{place} has no text in '{column}' (its columns: {', '.join(row)}): fill it, remove the row, or "
                    f"say which column it is by `columns={{{column}: NAME}}`."
                )
        if form == "text":
            found.append({"text": row["text"]})
        elif form == "prompt":
            found.append({"question": row["prompt"], "answer": row["completion"], "raw": True})
        else:
            found.append({"question": row["question"], "answer": row["answer"]})
    for name in places if form in ("question", "messages") else ():
        rows.require(name[1:-1], "prompt_template")
        if form == "messages":
            raise UserError(
                f"'{rows.source}' holds conversations, whose turns have no `{name}`: take it out of the "
                "`prompt_template`, or give rows of one question."
            )
        for row, theirs in zip(found, rows.rows, strict=True):
            value = theirs.get(name[1:-1])
            row.setdefault("columns", {})[name] = "" if value is None else str(value)
    if form in ("question", "prompt"):
        for column in EXTRAS:
            _add(found, rows, column)
    return found


def _conversation(messages: Any, place: str) -> Row:
    """The last question and answer of a conversation, and the turns before."""
    turns = [_turn(turn) for turn in messages] if isinstance(messages, list) else []
    if not turns or not all(_is_text(turn["content"]) for turn in turns):
        raise UserError(f"{place} has no list of messages with a role and a text as content each: mend it.")
    roles = [turn["role"] for turn in turns]
    if roles[-1] != "assistant":
        raise UserError(f"{place} ends with a message of the {roles[-1]}: the assistant must have the last word.")
    asked = roles[1:] if roles[0] == "system" else roles
    if asked != ["user", "assistant"] * (len(asked) // 2):
        raise UserError(
            f"{place} has the roles {', '.join(map(str, roles))}: user and assistant must take turns, after one system "
            "message at most."
        )
    *before, question, answer = turns
    return {"question": question["content"], "answer": answer["content"], **({"before": before} if before else {})}


def _turn(message: Any) -> dict[str, Any]:
    """A message with our names: ShareGPT's are from and value, and a content may be a list of parts."""
    if not isinstance(message, dict):
        return {"role": None, "content": None}
    role, content = message.get("role", message.get("from")), message.get("content", message.get("value"))
    if isinstance(content, list) and all(isinstance(x, dict) and isinstance(x.get("text"), str) for x in content):
        content = "".join(part["text"] for part in content)
    return {"role": ROLES.get(str(role), role), "content": content}


def _add(found: list[Row], rows: Rows, column: str) -> None:
    """Take over an optional column, if every row has it.

    Raises:
        UserError: A row has several texts where one belongs, a wrong answer that is no text, or another number of them
            than the first.
    """
    values: list[Any] = [row.get(column) for row in rows.rows]
    for i, value in enumerate(values):
        if isinstance(value, list) and column != "perturbed_answer":
            raise UserError(f"{upper(rows.place(i))} has a list in '{column}': give one text.")
    if not all(_is_text(x) or (isinstance(x, list) and x) for x in values):
        return
    if column == "perturbed_answer":
        values = [[x] if isinstance(x, str) else x for x in values]
        for i, value in enumerate(values):
            if not all(map(_is_text, value)):
                raise UserError(
                    f"{upper(rows.place(i))} has something in 'perturbed_answer' that is no text, or an empty one: "
                    "mend it, or remove the column."
                )
            if len(value) != len(values[0]):
                raise UserError(
                    f"{upper(rows.place(i))} has {len(value)} texts in 'perturbed_answer', and the first row "
                    f"{len(values[0])}: give each row the same number of wrong answers."
                )
    for row, value in zip(found, values, strict=True):
        row[column] = value


def turns_of(row: Row) -> list[Row]:
    """A conversation as rows of one answer each, with the turns before it; a row of one answer is itself."""
    before = row.get("before", [])
    answered = [
        {
            "question": before[i - 1]["content"],
            "answer": turn["content"],
            **({"before": before[: i - 1]} if i > 1 else {}),
        }
        for i, turn in enumerate(before)
        if turn["role"] == "assistant"
    ]
    return [*answered, row]


def chosen_rows(rows: Rows, numbers: list[int] | str | None, where: str | None) -> list[int]:
    """Which rows of one source must be forgotten.

    Args:
        rows: The source.
        numbers: Their numbers from 0, or a text file with a number a line.
        where: ``COLUMN=VALUE`` instead.

    Raises:
        UserError: Neither or both are given, they name no row or every row, or a row that is not there or twice.
    """
    if (numbers is None) == (where is None):
        raise UserError(
            "One file of all rows (`full`) needs to be told what to forget: give either `forget_rows`, row "
            "numbers from 0, or `forget_where=COLUMN=VALUE`."
        )
    if numbers is not None:
        return forgotten_rows(numbers, len(rows.rows))
    column, equals, value = str(where).partition("=")
    if not equals:
        raise UserError(f"`forget_where` is '{where}': write COLUMN=VALUE, for example author=Falbro.")
    rows.require(column, "forget_where")
    found, near, wanted = [], [], same(value)
    for i, row in enumerate(rows.rows):
        spellings = _spellings(row.get(column))
        if value in spellings:
            found.append(i)
        elif wanted in map(same, spellings):
            near.append(i)
    if near:
        rank_zero_warn(
            f"{len(near)} more row(s) of '{rows.source}' have '{value}' in '{column}' but for spaces, capitals or "
            f"composed characters, and stay (first: {rows.place(near[0])}, {rows.rows[near[0]][column]!r}): make "
            "the column uniform if they must go, too."
        )
    if not found:
        raise UserError(
            f"None of the {len(rows.rows)} rows of '{rows.source}' has '{value}' in the column '{column}', as "
            "`forget_where` says: give the text as it stands there, capitals included."
        )
    if len(found) == len(rows.rows):
        raise UserError(
            f"All {len(found)} rows of '{rows.source}' have '{value}' in the column '{column}', as `forget_where` "
            "says, so nothing is left to retain: choose by another column, or give a file with more rows."
        )
    return found


Keys = Sequence[Sequence[Hashable]]
"""What makes each row of a source what it is; of a document, each piece of it."""


def refuse_overlap(one: tuple[Rows, Keys], other: tuple[Rows, Keys], why: str) -> None:
    """Refuse rows that are in two sources.

    Args:
        one: A source and the keys of its rows.
        other: Another.
        why: What follows from it and what to do, the end of the message.

    Raises:
        UserError: How many, and the first in both.
    """
    places: dict[Hashable, int] = {}
    for j, keys in enumerate(other[1]):
        for key in keys:
            places.setdefault(key, j)
    both = [(i, places[key]) for i, keys in enumerate(one[1]) for key in keys if key in places]
    if both:
        (i, j), names = both[0], [rows.option for rows, _ in (one, other)]
        raise UserError(
            f"{len(dict(both))} of {len(one[1])} {names[0]} rows are among the {names[1]} rows too (first: "
            f"{one[0].place(i)}, which is {other[0].place(j)}): {why}."
        )


def read_rows(source: Source, option: str, columns: dict[str, str]) -> Rows:
    """A source with our names of columns."""
    return read_source(source, option).named(columns)


def _spellings(value: Any) -> tuple[str, ...]:
    """A value as Python writes it and, of what is no text, as JSON does: true, null."""
    return (value,) if isinstance(value, str) else (str(value), json.dumps(value, default=str))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
