"""RWKU (Jin et al. 2024): what a pretrained model knows of real subjects by itself, asked for at several levels."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.json_lists import fields, json_list
from ofmu_pl.data.pieces import pieces
from ofmu_pl.data.row_encoder import RowEncoder
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text import Encoder
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.support.errors import NotAtHand, UserError, check_range
from ofmu_pl.support.files import below
from ofmu_pl.support.hub import load_hub_rows
from ofmu_pl.support.sets import PROBE

LEVELS = {"forget": (1, 2, 3), "neighbor": (1, 2)}
"""Levels of questions about the subjects, and about what is near them: blanks, questions, attacks."""
PARTS = {f"{about}_level{level}": (about, level) for about, levels in LEVELS.items() for level in levels}
"""What is asked, by the name that files and configurations have for it: about what, and at which level."""
SIDES = {"forget": "forget", "neighbor": "retain"}
BLANK = "Please complete the blank in the following question.\nQuestion: {}\n"
QUESTION = "Please briefly answer the following question.\nQuestion: {}\n"
UNUSUAL = {
    "affirmative suffix": (QUESTION.rstrip("\n"), False),
    "incontext learning": ("Please briefly answer the following question.\n{}\n", True),
}
"""Attacks that are put otherwise than questions: how, and whether the reply is begun."""
BEGUN = "Answer:"
REPLY = {"tokens": 30, "before": ("\n",)}
"""What of a generation counts as the reply: so many tokens, up to the end of the line."""


class RWKU(TextDataModule):
    """RWKU's texts on subjects that a pretrained model must forget, and its questions about these and their neighbours.

    Nothing is learnt first: the model knows its subjects from its pretraining, so there is no retrained model either.
    Methods forget the texts on the subjects, which RWKU had its models write themselves; RWKU gives none to keep, and
    here the texts on the other subjects are kept. Texts are cut into pieces of ``max_length`` tokens that lose none.

    A text may have a ``prompt`` that it replies to and a beginning, ``begun``: then only what follows is forgotten or
    kept, for most of a short sentence is no knowledge.

    The evaluation sets are ``forget_doc`` and ``retain_doc``, the texts (``forget`` and ``retain``, if they are
    replies); ``probe_level1_forget``, sentences with a blank; ``probe_level2_forget``, questions;
    ``probe_level3_forget``, questions in forms that attack; and ``probe_level1_retain`` and ``probe_level2_retain``,
    blanks and questions on the subjects' neighbours, which are in no text. Questions are put by the chat template in
    RWKU's words, and the reply is begun with ``Answer:``.

    Args:
        data: Folder with a folder a subject (``1_Stephen_King``), as RWKU's ``data_process.py`` writes it
            (LLaMA-Factory/data/RWKU/Target), or its hub id, ``jinzhuoran/RWKU``. Subjects of your own in the same form
            will do (``scripts/rwku_data.py``).
        forget: Subjects to forget, such as ``[Stephen King]``.
        retain: Subjects to keep; ``null``: all others.
        texts: The texts: a subject's file without ``.json``, or the hub's configuration (``train_positive_llama3``).
        eval_rows: Most pieces of texts to keep that are evaluated, evenly spaced, so that a search of settings may look
            at the others; ``null``: all.
        batch_size: Pieces a batch.
        kwargs: See ``TextDataModule``.

    Raises:
        UserError: A subject or a file is missing, or a row has another form.

    Example:
        >>> data = RWKU("RWKU/Target", forget=["Stephen King"], tokenizer="meta-llama/Meta-Llama-3-8B-Instruct")
        >>> data.setup()  # doctest: +SKIP
        >>> sorted(data.evaluation_sets)[:3]  # doctest: +SKIP
        ['forget_doc', 'probe_level1_forget', 'probe_level1_retain']
        >>> data.suite
        'rwku'
    """

    name = "rwku"
    suite = "rwku"

    def __init__(
        self,
        data: str,
        forget: list[str],
        retain: list[str] | None = None,
        texts: str = "positive",
        eval_rows: int | None = None,
        batch_size: int = 32,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size, **kwargs)
        check_range(1, eval_rows=eval_rows)
        self.data, self.forget, self.retain, self.texts, self.eval_rows = data, forget, retain, texts, eval_rows

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Read the texts and cut them, read the questions."""
        found = self._from_folder() if Path(self.data).expanduser().is_dir() else self._from_hub()
        first = next(iter(found["texts"]["forget"]), None)
        replies = isinstance(first, dict) and "begun" in first
        read = self._replies if replies else self._pieces
        splits = {side: read(rows) for side, rows in found["texts"].items()}
        kept = list(evenly(splits["retain"], self.eval_rows or len(splits["retain"])))
        form = "" if replies else "_doc"
        sets: dict[str, list[Row]] = {f"forget{form}": splits["forget"], f"retain{form}": kept}
        for part, rows in found["asked"].items():
            about, level = PARTS[part]
            fields(rows, ("query", "answer"), f"{part} of '{self.data}'", "give them to it")
            sets[f"{PROBE}level{level}_{SIDES[about]}"] = [asked(row, level) for row in rows]
        splits["full"] = splits["forget"] + splits["retain"]
        return splits, {name: rows for name, rows in sets.items() if rows}

    def make_encoder(self) -> Encoder:
        """Questions go through the tokenizer's chat template, or stand as they are where it has none."""
        template = None if self.tokenizer.chat_template else "{question}"
        return RowEncoder(self.tokenizer, self.system_prompt, template, max_length=None)

    def _pieces(self, rows: list[Any]) -> list[Row]:
        """Texts as documents."""
        texts = [text for (text,) in fields(rows, ("text",), self._place, "give it one")]
        return [row for own in pieces(self.make_tokenizer(), texts, self.max_length) for row in own]

    def _replies(self, rows: list[Any]) -> list[Row]:
        """Texts as replies, of which the beginning is given."""
        found = fields(rows, ("prompt", "begun", "text"), self._place, "give them to it, as the first text has them")
        for number, (_, begun, text) in enumerate(found, start=1):
            if not text.startswith(begun) or not text.removeprefix(begun).strip():
                raise UserError(f"Row {number} of {self._place} does not go on where `begun` ends: mend either.")
        return [{"question": q, "begun": begun, "answer": text.removeprefix(begun).strip()} for q, begun, text in found]

    @property
    def _place(self) -> str:
        """Where the texts are, for messages."""
        return f"the texts of '{self.data}'"

    def _sides(self, known: Iterable[str]) -> dict[str, list[str]]:
        """The subjects of each side, of those that there are."""
        there = {_plain(subject): subject for subject in known}
        kept = [x for x in there if x not in set(map(_plain, self.forget))] if self.retain is None else self.retain
        sides = {"forget": self.forget, "retain": kept}
        for side, subjects in sides.items():
            missing = [subject for subject in subjects if _plain(subject) not in there]
            if missing or not subjects:
                raise UserError(
                    f"'{self.data}' has no subject {', '.join(missing) or f'to {side}'}: choose --data.{side} among "
                    f"{', '.join(there) or 'the folders of another place'}."
                )
        return {side: [there[_plain(subject)] for subject in subjects] for side, subjects in sides.items()}

    def _from_folder(self) -> dict[str, dict[str, list[Any]]]:
        """Rows of files: texts by side, and what is asked by part."""
        folder = Path(self.data).expanduser()
        sides = self._sides(path.name for path in sorted(folder.iterdir()) if path.is_dir())

        def read(side: str, part: str) -> list[Any]:
            remedy = "give the folder that RWKU's data_process.py writes as --data.data"
            paths = [below(folder / subject, f"{part}.json", "The file of --data.texts") for subject in sides[side]]
            return [row for path in paths for row in json_list(path, remedy)]

        return {
            "texts": {side: read(side, self.texts) for side in sides},
            "asked": {part: read("forget", part) for part in PARTS},
        }

    def _from_hub(self) -> dict[str, dict[str, list[Any]]]:
        """The same rows of the published data set."""
        try:
            texts = load_hub_rows(self.data, self.texts, "train")
            asked_for = {part: load_hub_rows(self.data, part, "test") for part in PARTS}
        except (OSError, ValueError) as error:
            raise NotAtHand(
                f"'{self.data}' is no folder, and its configuration '{self.texts}' or its questions cannot be loaded "
                "from the hub: give the folder that RWKU's data_process.py writes as --data.data, or with the hub's id "
                "--data.texts train_positive_llama3."
            ) from error
        sides = self._sides(dict.fromkeys(str(row.get("subject")) for row in texts))

        def of(side: str, rows: list[dict[str, Any]]) -> list[Any]:
            return [row for row in rows if row.get("subject") in sides[side]]

        return {
            "texts": {side: of(side, texts) for side in sides},
            "asked": {part: of("forget", rows) for part, rows in asked_for.items()},
        }


def asked(row: dict[str, Any], level: int) -> Row:
    r"""A row of RWKU's questions as encoders read it.

    Args:
        row: Its ``query`` and ``answer``, and of level 3 the ``type`` of attack.
        level: Its level.

    >>> asked({"query": "Who wrote It?", "answer": "Stephen King"}, 2)["question"]
    'Please briefly answer the following question.\nQuestion: Who wrote It?\n'
    """
    usual = (BLANK if level == 1 else QUESTION, True)
    form, begun = UNUSUAL.get(str(row.get("type")), usual) if level == 3 else usual
    question = form.replace("{}", row["query"])
    return {"question": question, "answer": row["answer"], "counts": REPLY} | ({"begun": BEGUN} if begun else {})


def _plain(subject: str) -> str:
    """A subject's name without the number and the underscores that its folder has."""
    return re.sub(r"^\d+_", "", subject).replace("_", " ")
