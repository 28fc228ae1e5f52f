"""RWKU (Jin et al. 2024): what a pretrained model knows of real subjects by itself, asked for at several levels."""

import re
from itertools import chain
from pathlib import Path
from typing import Any

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import Rows, from_hub, read_file, sound
from ofmu_pl.data.pieces import pieces_of
from ofmu_pl.data.text import Encoder
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.files import below
from ofmu_pl.support.sets import PROBE

PARTS = {
    "forget_level1": ("forget", 1),
    "forget_level2": ("forget", 2),
    "forget_level3": ("forget", 3),
    "neighbor_level1": ("retain", 1),
    "neighbor_level2": ("retain", 2),
}
"""What is asked, by its file: about the subjects or what is near them; blanks, questions, attacks."""
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
        kwargs: See ``TextDataModule``.

    Example:
        >>> data = RWKU("RWKU/Target", forget=["Stephen King"], tokenizer="meta-llama/Meta-Llama-3-8B-Instruct")
        >>> data.setup()  # doctest: +SKIP
        >>> sorted(data.evaluation_sets)[:3]  # doctest: +SKIP
        ['forget_doc', 'probe_level1_forget', 'probe_level1_retain']
        >>> data.suite
        'ofmu_pl.metrics.rwku.rwku_metrics'
    """

    name = "rwku"
    suite = "ofmu_pl.metrics.rwku.rwku_metrics"
    cuts_rows = False

    def __init__(
        self,
        data: str,
        forget: list[str],
        retain: list[str] | None = None,
        texts: str = "positive",
        eval_rows: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_range(1, eval_rows=eval_rows)
        self.data, self.forget, self.retain, self.texts, self.eval_rows = data, forget, retain, texts, eval_rows
        self.folder = Path(data).expanduser()

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Read the texts and cut them, read the questions."""
        sides = self._sides()
        texts = {side: self._rows(self.texts, "train", subjects) for side, subjects in sides.items()}
        replies = any("begun" in row for row in texts["forget"].rows[:1])
        read = self._replies if replies else self._pieces
        splits = {side: read(rows) for side, rows in texts.items()}
        form = "" if replies else "_doc"
        sets = {f"forget{form}": splits["forget"], f"retain{form}": self.evaluated(splits["retain"])}
        for part, (side, level) in PARTS.items():
            rows = self._rows(part, "test", sides["forget"])
            rows.texts("query", "answer")
            sets[f"{PROBE}level{level}_{side}"] = [asked(row, level) for row in rows.rows]
        splits["full"] = splits["forget"] + splits["retain"]
        return splits, {name: rows for name, rows in sets.items() if rows}

    def make_encoder(self) -> Encoder:
        """Questions go through the tokenizer's chat template, or stand as they are where it has none."""
        self.prompt_template = None if self.tokenizer.chat_template else "{question}"
        return super().make_encoder()

    def _pieces(self, rows: Rows) -> list[Row]:
        """Texts as documents."""
        return list(chain.from_iterable(pieces_of(self.make_tokenizer(), rows, self.max_length)))

    def _replies(self, rows: Rows) -> list[Row]:
        """Texts as replies, of which the beginning is given."""
        found = []
        for i, (question, begun, text) in enumerate(rows.texts("prompt", "begun", "text")):
            answer = text.removeprefix(begun).strip()
            if not text.startswith(begun) or not answer:
                raise UserError(f"{rows.place(i)} does not go on where `begun` ends: mend either.")
            found.append({"question": question, "begun": begun, "answer": answer})
        return found

    def _sides(self) -> dict[str, list[str]]:
        """The subjects of each side, of those that there are."""
        if self.folder.is_dir():
            known = [path.name for path in sorted(self.folder.iterdir()) if path.is_dir()]
        else:
            rows = from_hub(self.data, self.texts, "train", "data.data").rows
            known = list(dict.fromkeys(str(row.get("subject")) for row in rows))
        there = {_plain(subject): subject for subject in known}
        gone = list(map(_plain, self.forget))
        kept = [x for x in there if x not in gone] if self.retain is None else list(map(_plain, self.retain))
        sides = {"forget": gone, "retain": kept}
        for side, subjects in sides.items():
            missing = [subject for subject in subjects if subject not in there]
            if missing or not subjects:
                raise UserError(
                    f"'{self.data}' has no subject {', '.join(missing) or f'to {side}'}: choose data.{side} among "
                    f"{', '.join(there) or 'the folders of another place'}."
                )
            sides[side] = [there[subject] for subject in subjects]
        return sides

    def _rows(self, part: str, split: str, subjects: list[str]) -> Rows:
        """The rows of one part that are about these subjects."""
        if not self.folder.is_dir():
            found = from_hub(self.data, part, split, "data.data")
            return found.part(i for i, row in enumerate(found.rows) if row.get("subject") in subjects)
        rows: list[Row] = []
        for subject in subjects:
            path = below(self.folder / subject, f"{part}.json", "The file of `data.texts`")
            rows += read_file(path, "data.texts").rows
        return sound(f"{part} of {self.data}", "data.data", rows)


def asked(row: Row, level: int) -> Row:
    r"""A row of RWKU's questions as encoders read it.

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
