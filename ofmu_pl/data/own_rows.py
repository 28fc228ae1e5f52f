"""Rows of one's own in the forms that are known, checked and brought to the fields that everything else reads."""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.data.encoded import Row, identity, same
from ofmu_pl.data.own_files import Rows, forgotten_rows, is_text
from ofmu_pl.data.row_formats import FORMS
from ofmu_pl.data.turns import THOUGHTS, conversation, turns_of, with_thought
from ofmu_pl.support.errors import UserError

EXTRAS = ("paraphrased_answer", "paraphrased_question", "perturbed_answer")
"""Columns that switch further metrics on where every row has them."""


def form_of(rows: Rows, columns: dict[str, str]) -> str:
    """The form of a source's rows."""
    order = sorted(FORMS, key=lambda form: form not in columns)
    first = None
    for i, row in enumerate(rows.rows):
        form = next((form for form in order if form in row), None)
        first = first or form
        if first is None:
            raise UserError(
                f"'{rows.source}' has the columns {', '.join(row)} and none of the forms {', '.join(FORMS)}: say which "
                "column is which, for all files alike, for example --data.columns "
                f"'{{question: {next(iter(row), 'NAME')}, answer: NAME}}'."
            )
        if form != first:
            has = f"a '{form}'" if form else f"no '{first}'"
            raise UserError(f"{rows.place(i)} has {has}, and rows before it have '{first}': make two files of them.")
    return "messages" if first == "conversations" else str(first)


def sound_rows(rows: Rows, form: str, places: Sequence[str] = ()) -> list[Row]:
    """The rows with the fields that encoders and metrics read.

    ``question`` and ``answer``, with its thought before it; ``before`` and ``between``, the turns before the last
    question, and those between it and the answer; ``raw`` where the question is the prompt itself, without a template;
    ``columns``, what fills other places of the template, as ``{input}``.
    """
    found: list[Row] = []
    if form == "messages":
        for i, row in enumerate(rows.rows):
            found.append(conversation(row.get("messages", row.get("conversations")), rows.place(i)))
    else:
        raw = {"raw": True} if form == "prompt" else {}
        found = [{"question": question, "answer": answer} | raw for question, answer in rows.texts(*FORMS[form])]
    for row, theirs in zip(found, rows.rows, strict=True):
        if form == "question" and is_text(theirs.get(THOUGHTS[0])):
            row["answer"] = with_thought(theirs[THOUGHTS[0]], row["answer"])
    for name in places if form != "prompt" else ():
        rows.require(name[1:-1], "data.prompt_template")
        if form == "messages":
            raise UserError(
                f"'{rows.source}' holds conversations, whose turns have no `{name}`: take it out of the "
                "`data.prompt_template`, or give rows of one question."
            )
        for row, theirs in zip(found, rows.rows, strict=True):
            value = theirs.get(name[1:-1])
            row.setdefault("columns", {})[name] = "" if value is None else str(value)
    for column in EXTRAS if form != "messages" else ():
        _add(found, rows, column)
    return found


def _add(found: list[Row], rows: Rows, column: str) -> None:
    """Take over an optional column, if every row has it: a text, or of wrong answers as many in each row."""
    values = [row.get(column) for row in rows.rows]
    if not all(is_text(value) or (isinstance(value, list) and value) for value in values):
        return
    several = column == "perturbed_answer"
    for i, value in enumerate(values):
        listed = value if isinstance(value, list) else [value]
        found[i][column] = listed if several else value
        wanted = len(found[0][column]) if several else 1
        if (listed is value and not several) or len(listed) != wanted or not all(map(is_text, listed)):
            raise UserError(
                f"{rows.place(i)} has {len(listed)} texts in a list of '{column}', or an empty one: give each row the "
                "same number of wrong answers, and one text in any other column."
            )


def chosen_rows(rows: Rows, numbers: list[int] | str | None, where: str | None) -> list[int]:
    """Which rows of one source must be forgotten."""
    if (numbers is None) == (where is None):
        raise UserError(
            "One file of all rows (`data.full`) needs to be told what to forget: give either `data.forget_rows`, row "
            "numbers from 0, or `data.forget_where=COLUMN=VALUE`."
        )
    if numbers is not None:
        return forgotten_rows(numbers, len(rows.rows))
    column, equals, value = str(where).partition("=")
    if not equals:
        raise UserError(f"`data.forget_where` is '{where}': write COLUMN=VALUE, for example author=Falbro.")
    rows.require(column, "data.forget_where")
    found, near, wanted = [], [], same(value)
    for i, row in enumerate(rows.rows):
        there = row.get(column)  # what is no text as Python and as JSON write it: True, true
        spellings = [there] if isinstance(there, str) else [str(there), json.dumps(there, default=str)]
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
    if not 0 < len(found) < len(rows.rows):
        raise UserError(
            f"{len(found)} of {len(rows.rows)} rows of '{rows.source}' have '{value}' in the column '{column}', as "
            "`data.forget_where` says: choose some as the text stands there, and leave others to retain."
        )
    return found


@dataclass(frozen=True)
class Side:
    """Rows to forget, to retain or held out, their form, and what each is trained on as: itself, or its pieces."""

    name: str
    rows: Rows
    form: str
    parts: list[list[Row]]


def refuse_overlap(one: Side, other: Side, why: str) -> None:
    """Refuse rows that are in two sources; a conversation teaches each of its turns."""
    places: dict[Hashable, int] = {}
    for j, own in enumerate(other.parts):
        for row in own:
            for turn in turns_of(row):
                places.setdefault(identity(turn), j)
    both: dict[int, int] = {}
    for i, own in enumerate(one.parts):
        for row in own:
            if (key := identity(row)) in places:
                both.setdefault(i, places[key])
    for i, j in both.items():
        raise UserError(
            f"{len(both)} of {len(one.parts)} {one.name} rows are among the {other.name} rows too (first: "
            f"{one.rows.place(i)}, which is in {other.rows.place(j)}): {why}."
        )
