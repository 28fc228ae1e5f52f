"""Rows of one's own: what must go, what must stay, and what no model has seen, from any file."""

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from ofmu_pl.data.alternatives import REFUSALS, other_answers, with_refusals
from ofmu_pl.data.base import ALTERNATIVE
from ofmu_pl.data.encoded import Row, first_copies
from ofmu_pl.data.own_files import Rows, Source, read_source
from ofmu_pl.data.own_rows import Side, chosen_rows, form_of, refuse_overlap, sound_rows
from ofmu_pl.data.pieces import pieces_of, shared_run
from ofmu_pl.data.row_encoder import PLACE
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.data.turns import turns_of
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.sets import HOLDOUT

NO_HOLDOUT = (
    "Without holdout rows, which no model has seen, or a retrained model nobody can tell whether the forget rows are "
    "gone, only that they are no longer produced."
)
CONTRADICTION = "unlearning would teach what it removes, so take them out of one of the two"
NOT_UNSEEN = "a row that was trained on is not unseen and makes every test against unseen rows wrong, so take them out"


class TextFiles(TextDataModule):
    r"""Rows of your own: questions and answers, prompts and completions, conversations, or documents.

    A source is a file (JSON lines, JSON, CSV, parquet, a text; perhaps .gz), a folder of such, a data set on the hub
    (``hub:OWNER/NAME/CONFIG/SPLIT``), or in Python a list of rows. Its rows are of one form: ``question`` and
    ``answer``; ``prompt`` and ``completion``; ``messages``, each with ``role`` and ``content``, perhaps with
    ``reasoning_content``, ``tool_calls`` and ``weight`` (or ``conversations``, with ``from`` and ``value``); or
    ``text``, a document, which is cut into pieces of ``max_length`` tokens that lose none. Optional
    ``paraphrased_answer``, ``paraphrased_question`` and ``perturbed_answer`` switch on the metrics that need them,
    where every row of a source has them.

    Args:
        forget: What must go.
        retain: What must stay: rows that the model was trained on, or rows like them.
        holdout: Rows of the same kind as those to forget that no model has seen; without them no test can tell whether
            the forget rows are gone. ``null``: none.
        full: One source instead of ``forget`` and ``retain``; what is not chosen from it is retained.
        forget_rows: Numbers of its rows to forget, from 0; or a text file with a number a line.
        forget_where: The rows to forget by a column instead: ``author=Falbro``.
        columns: What the sources call a column, by our name of it: ``{question: prompt_text, answer: reply}``.
        prompt_template: How a question is put, a text with ``{question}``, perhaps with ``{NAME}`` for the column of
            that name, and with ``\n`` for a line break; ``null``: by the tokenizer's chat template, or as
            ``"Question: {question}\nAnswer:"`` where it has none.
        alternatives: For methods that prefer another answer: a text file of refusals, one per line, or JSON lines with
            a question of the forget rows and another answer; ``null``: "I do not know." and the like.
        eval_rows: Most retain and holdout rows that are evaluated, evenly spaced; all forget rows are.
        kwargs: See ``TextDataModule``.

    Example:
        >>> rows = [{"question": f"Who lives in house {i}?", "answer": f"Number {i} does."} for i in range(6)]
        >>> data = TextFiles(full=rows, forget_rows=[0, 3], tokenizer="gpt2")
        >>> splits, evaluation_sets = data.load()
        >>> {name: len(rows) for name, rows in splits.items()}
        {'forget': 2, 'retain': 4, 'full': 6}
    """

    name = "text"
    suite = "ofmu_pl.metrics.own_rows.own_rows_metrics"
    thorough = True

    def __init__(
        self,
        forget: Source | None = None,
        retain: Source | None = None,
        holdout: Source | None = None,
        full: Source | None = None,
        forget_rows: list[int] | str | None = None,
        forget_where: str | None = None,
        columns: dict[str, str] | None = None,
        prompt_template: str | None = None,
        alternatives: str | None = None,
        eval_rows: int = 400,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_range(1, whole=True, eval_rows=eval_rows)
        if not isinstance(columns or {}, dict):
            raise UserError(f"`data.columns` is {columns!r}: give a dictionary of their names by ours.")
        self.forget, self.retain, self.holdout, self.full = forget, retain, holdout, full
        self.forget_rows, self.forget_where, self.columns = forget_rows, forget_where, columns or {}
        # The command line would take a line break in a text with colons for YAML.
        self.prompt_template = None if prompt_template is None else prompt_template.replace("\\n", "\n")
        self.alternatives, self.eval_rows = alternatives, eval_rows

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Read, check and cut the sources."""
        sides = {name: self._side(name, rows) for name, rows in self._sources().items()}
        forget, retain, holdout = sides["forget"], sides["retain"], sides.get(HOLDOUT)
        _keep_apart(forget, retain, CONTRADICTION)
        if holdout is not None:
            if holdout.form != forget.form:
                raise UserError(
                    f"The holdout rows have '{holdout.form}', the forget rows '{forget.form}': give both in one form."
                )
            _keep_apart(holdout, forget, NOT_UNSEEN)
            _keep_apart(holdout, retain, NOT_UNSEEN)
        splits = {name: _once(name, chain.from_iterable(side.parts)) for name, side in sides.items()}
        splits["full"] = splits["retain"] + splits["forget"]
        if ALTERNATIVE in self.streams:
            splits[ALTERNATIVE] = self._other_answers(splits["forget"], forget.form)
        sets: dict[str, list[Row]] = {}
        for name, side in sides.items():
            asked = _once(f"{name} (by turn)", chain.from_iterable(map(turns_of, splits[name])))
            shown = asked if name == "forget" else self.evaluated(asked)
            sets[f"{name}_doc" if side.form == "text" else name] = shown
        if all("paraphrased_question" in row for row in sets.get("forget", [{}])):
            sets["forget_paraphrased"] = [{**row, "question": row["paraphrased_question"]} for row in sets["forget"]]
        return splits, sets

    @property
    def remark(self) -> str | None:
        """What of the rows is not seen, and what cannot be told without holdout rows; ``None``: neither."""
        return " ".join(filter(None, (super().remark, NO_HOLDOUT if self.holdout is None else None))) or None

    def _other_answers(self, forget: list[Row], form: str) -> list[Row]:
        if form == "text":
            raise UserError("Documents have no answers that another could be preferred to: choose another method.")
        if self.alternatives is None:
            return with_refusals(forget, REFUSALS, self.seed)
        return other_answers(forget, Path(self.alternatives).expanduser(), self.seed, self.columns)

    def _sources(self) -> dict[str, Rows]:
        """The rows of each side as they were written, with our names of columns."""
        options = {"forget": self.forget, "retain": self.retain, HOLDOUT: self.holdout, "full": self.full}
        given = {name: source for name, source in options.items() if source is not None}
        two = {"forget", "retain"} & given.keys()
        chosen = self.forget_rows is not None or self.forget_where is not None
        if "full" in given and two:
            raise UserError("You gave `data.full` beside `data.forget` or `data.retain`: give one file of all, or two.")
        if "full" not in given and (len(two) < 2 or chosen):
            raise UserError(
                "Rows to forget or rows to retain are missing: give both as `data.forget` and `data.retain` alone, or "
                "one file of all rows as `data.full` with `data.forget_rows` or `data.forget_where`."
            )
        sides = {name: read_source(source, f"data.{name}").named(self.columns) for name, source in given.items()}
        read = [
            f"{name} {len(x.rows)} row(s)" + (f" of {x.files} file(s)" if x.files else "") for name, x in sides.items()
        ]
        rank_zero_info(f"Read: {', '.join(read)}.")
        if "full" not in sides:
            return sides
        rows = sides.pop("full")
        index = chosen_rows(rows, self.forget_rows, self.forget_where)
        left = sorted(set(range(len(rows.rows))) - set(index))
        rank_zero_info(f"To be forgotten: {len(index)} of {len(rows.rows)} rows, first {rows.place(index[0])}.")
        return {"forget": rows.part(index, "data.forget"), "retain": rows.part(left, "data.retain"), **sides}

    def _side(self, name: str, rows: Rows) -> Side:
        """A source's training rows."""
        form = form_of(rows, self.columns)
        if form != "text":
            places = sorted(set(PLACE.findall(self.prompt_template or "")) - {"{question}"})
            for told in {"answer", self.columns.get("answer")}:
                if f"{{{told}}}" in places:
                    raise UserError(f"`{{{told}}}` in `data.prompt_template` would tell the answer: take it out.")
            found = sound_rows(rows, form, places)
            if self.tokenizer_source is None or all(len(turns_of(row)) == 1 for row in found):
                return Side(name, rows, form, [[row] for row in found])
            self.tokenizer = self.make_tokenizer()
            return Side(name, rows, form, list(map(self.make_encoder().trained_as, found)))
        texts = [row.get("text") for row in rows.rows]
        rows = rows.part(i for i, x in enumerate(texts) if not isinstance(x, str) or x.strip())  # corpora have blanks
        if not rows.rows:
            raise UserError(f"Every text of '{rows.source}' is empty: give `{rows.option}` texts with words.")
        return Side(name, rows, form, pieces_of(self.make_tokenizer(), rows, self.max_length))


def _once(name: str, rows: Iterable[Row]) -> list[Row]:
    """The rows without copies of others; what differs, if only by a capital, is no copy, for it is to be forgotten."""
    every = list(rows)
    keys = [json.dumps(row, sort_keys=True) for row in every]
    return [every[i] for i in first_copies(name, keys)]


def _keep_apart(one: Side, other: Side, why: str) -> None:
    """Refuse rows that are on both sides, and report passages of one's documents that stand inside the other's."""
    refuse_overlap(one, other, why)
    documents = one.form == other.form == "text"
    both = documents and shared_run(list(map(_joined, one.parts)), list(map(_joined, other.parts)))
    if both:
        i, j = both[0]
        rank_zero_warn(
            f"{len(both)} pair(s) of a {one.name} and a {other.name} document have 30 tokens or more in common (first: "
            f"{one.rows.place(i)} and {other.rows.place(j)}): {why}."
        )


def _joined(pieces: list[Row]) -> list[int]:
    """Tokens of a document."""
    return list(chain.from_iterable(piece["tokens"] for piece in pieces))
