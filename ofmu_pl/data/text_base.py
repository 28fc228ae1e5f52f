"""Questions and answers, or plain texts, as forget and retain splits."""

import copy
import json
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from ofmu_pl.data.base import ALTERNATIVE, PairedDataModule
from ofmu_pl.data.encoded import Encoded, Lengths, Row, collate, identity, piece, refuse_cut_forget_rows, unseen
from ofmu_pl.data.guessable import Guessable
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.data.row_encoder import RowEncoder
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text import Encoder
from ofmu_pl.data.tokenizers import Tokenizer, load_tokenizer
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.files import text_hash
from ofmu_pl.support.sets import HOLDOUT, forgets


class TextDataModule(PairedDataModule):
    """Rows of text with a forget and a retain split, tokenized as the network's tokenizer says.

    Args:
        tokenizer: Hub id or folder; the command line takes it from the network. In Python also a tokenizer itself,
            which is copied.
        system_prompt: Content of a system turn before each question; ``null``: none.
        chat_template_kwargs: What the chat template is told beside the turns: ``{enable_thinking: false}``.
        max_length: Longer conversations are cut; ``null``: never.
        allow_cut: Go on although rows that must be forgotten are cut, so that their ends are neither unlearned nor
            measured.
        kwargs: See ``PairedDataModule``.

    Attributes:
        encoder: Turns rows into tokens.
        left_out: Number of pieces of text, by split, that are no rows because they are too short.

    Example:
        Data of your own names its splits and its evaluation sets.

        >>> class Capitals(TextDataModule):
        ...     name = "capitals"
        ...     def load(self):
        ...         cities = {"France": "Paris", "Spain": "Madrid", "Italy": "Rome"}
        ...         rows = [{"question": f"The capital of {k}?", "answer": v} for k, v in cities.items()]
        ...         return {"forget": rows[:1], "retain": rows[1:], "full": rows}, {"forget": rows[:1]}
        >>> splits, evaluation_sets = Capitals(tokenizer="gpt2").load()
        >>> {name: len(rows) for name, rows in splits.items()}
        {'forget': 1, 'retain': 2, 'full': 3}
    """

    modality = "text"
    suite: ClassVar[str] = "ofmu_pl.metrics.tofu.tofu_metrics"
    """The function that computes the metrics of this data from scores (``evaluation.text.Suite``), by its path."""
    thorough: ClassVar[bool] = False
    """Whether every evaluation set is looked at token by token and asked for answers, not the forget side alone."""
    rows_per_author: ClassVar[int] = 1
    """Number of forget rows, one after another, about one author, that may say something of each other."""
    prompt_template: str | None = None
    """How a question is put instead of by the tokenizer's chat template; ``None``: by that."""
    eval_rows: int | None = None
    """Most retain rows that are evaluated; ``None``: all."""
    length_argument: ClassVar[str | None] = "max_length"
    """The argument that bounds the length of training rows, for messages; ``None``: there is none."""
    cuts_rows: ClassVar[bool] = True
    """Whether ``max_length`` cuts rows, and not texts alone."""

    def __init__(
        self,
        tokenizer: str | None = None,
        system_prompt: str | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        max_length: int | None = 512,
        allow_cut: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_range(1, whole=True, max_length=max_length)
        self.tokenizer_source, self.system_prompt = tokenizer, system_prompt
        self.chat_template_kwargs = chat_template_kwargs
        self.max_length, self.allow_cut = max_length, allow_cut
        self.left_out: dict[str, int] = {}
        self._encoded: dict[str, list[Encoded]] = {}

    @abstractmethod
    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Load the splits and the evaluation sets, as in the class's attributes."""

    def make_tokenizer(self) -> Tokenizer:
        """The given tokenizer, or a byte-pair encoding, trained on the data's ``independent_texts``."""
        if self.tokenizer_source is not None:
            return load_tokenizer(self.tokenizer_source)
        texts = self.independent_texts()
        if not texts:
            raise UserError(
                "There is no tokenizer for this data: give the model's folder or hub id as --model.network.path, "
                "or a tokenizer as --model.network.tokenizer."
            )
        return train_tokenizer(texts)

    def independent_texts(self) -> list[str]:
        """Texts of the same kind to train a tokenizer on where none is given; none: there must be one.

        They are not the data's own: pieces fitted to the forget rows' own words would give these rows away.
        """
        return []

    def setup(self, stage: str | None = None) -> None:
        """Load, check and hash the rows; once."""
        if self.splits:
            return
        splits, evaluation_sets = self.load()
        self._take_others_out(splits, evaluation_sets)
        self.require(splits)
        _refuse_overlap({HOLDOUT: evaluation_sets.get(HOLDOUT, []), **splits})
        self.tokenizer = self.make_tokenizer()
        self.encoder = self.make_encoder()
        self._measure(splits, evaluation_sets)
        self.hashes = {name: content_hash(rows) for name, rows in splits.items()}
        self.hashes |= {f"{name}_eval": content_hash(rows) for name, rows in evaluation_sets.items()}
        if HOLDOUT in evaluation_sets:
            splits.setdefault(HOLDOUT, evaluation_sets[HOLDOUT])  # after the hashes: nothing is trained on it
        self.splits, self.evaluation_sets = splits, evaluation_sets  # last: they mark a set-up that went well

    def evaluated(self, rows: list[Row]) -> list[Row]:
        """At most ``eval_rows`` of the rows, evenly spaced."""
        return list(evenly(rows, self.eval_rows or len(rows)))

    def _take_others_out(self, splits: dict[str, list[Row]], evaluation_sets: dict[str, list[Row]]) -> None:
        """Retain no row that another request names, and evaluate what it names under its own name."""
        for name, other in self.others().items():
            theirs, their_sets = other.load()
            asked = {suffix: their_sets.get(f"forget{suffix}", []) for suffix in ("", "_doc")}
            evaluation_sets |= {f"{name}{suffix}": rows for suffix, rows in asked.items() if rows}
            trained = set(map(identity, theirs["forget"]))
            gone = trained.union(map(identity, chain(*asked.values())))  # of conversations each turn is asked for
            splits["retain"] = [row for row in splits["retain"] if identity(row) not in trained]
            for side in {"retain", "retain_doc"} & evaluation_sets.keys():
                evaluation_sets[side] = [row for row in evaluation_sets[side] if identity(row) not in gone]

    def _measure(self, splits: dict[str, list[Row]], evaluation_sets: dict[str, list[Row]]) -> None:
        """Measure the rows that are drawn from or evaluated, to say before any work what will not be seen."""
        self._encoded = {name: self.encoder.encode_training_rows(splits[name]) for name in {"forget", *self.streams}}
        for name, encoded in sorted(self._encoded.items()):
            self.lengths[name] = Lengths.of(([e] for e in encoded), self.left_out.get(name, 0))
        for name, rows in evaluation_sets.items():
            self.lengths[f"{name}_eval"] = Lengths.of(self.encoder.encode_rows(rows))
        if not self.allow_cut:
            refuse_cut_forget_rows(self.lengths, self.max_length)
        if self.remark is not None:
            rank_zero_warn(self.remark)

    @property
    def remark(self) -> str | None:
        """A sentence on the parts of rows that no method and no metric sees; ``None``: they see everything."""
        return unseen(self.lengths, self.max_length)

    @property
    def never_seen(self) -> str | None:
        """The holdout rows, if there are any."""
        return HOLDOUT if HOLDOUT in self.splits else None

    def with_held_out(self) -> Self | None:
        """This data, after ``setup``, with its held-out rows instead of those to forget; ``None``: it has none."""
        if self.never_seen is None:
            return None
        other = copy.copy(self)
        sets = {name: rows for name, rows in self.evaluation_sets.items() if not forgets(name)}
        encoded = {name: rows for name, rows in self._encoded.items() if name != "forget"}
        own = {"splits": self.splits | {"forget": self.splits[HOLDOUT]}, "_encoded": encoded}
        vars(other).update(own, evaluation_sets=sets | {"forget": self.evaluation_sets.get(HOLDOUT, [])})
        return other

    def blank(self) -> None:
        """Stand in for ``setup`` with rows of ``max_length`` tokens, all but the first of which have a loss."""
        n = self.max_length
        if n is None:
            raise UserError("A row may have any number of tokens here, so memory has no bound: set `data.max_length`.")
        self.tokenizer = train_tokenizer(["a"])
        for name in ("forget", "retain", "full", ALTERNATIVE):
            self.splits[name] = [{} for _ in range(self.batch_size)]
            # One is a token shorter, for rows differ in length and padding needs a mask.
            self._encoded[name] = [piece([0] * n)] * (self.batch_size - 1) + [piece([0] * (n - 1))]

    def make_encoder(self) -> Encoder:
        """Make what turns rows into tokens: by the tokenizer's chat template, or a plain one where it has none."""
        most, told = self.max_length if self.cuts_rows else None, self.chat_template_kwargs
        return RowEncoder(
            self.tokenizer, self.system_prompt, self.prompt_template, max_length=most, template_options=told
        )

    def encode(self, row: Row) -> Encoded:
        """Tokens and labels of a training row."""
        return self.encoder.encode_training_rows([row])[0]

    @property
    def facts(self) -> dict[str, object]:
        """Hash and date of the prompt's template."""
        return {"template_hash": self.encoder.template_hash, "date_string": self.encoder.date_string}

    def collate(self, stream: str, index: list[int], number: int) -> dict[str, Tensor]:
        """Make padded tokens, attention mask and labels, (B, S) each, and ids, (B,)."""
        encoded = self.encoded(stream)
        return collate([encoded[i] for i in index], index, self.tokenizer.pad_token_id)

    def encoded(self, split: str) -> list[Encoded]:
        """The rows of a split as tokens."""
        if split not in self._encoded:  # not one of ``streams``
            self._encoded[split] = self.encoder.encode_training_rows(self.splits[split])
        return self._encoded[split]

    def kinds(self, row: Encoded) -> np.ndarray:
        """The kind of each token that a row's loss is on, (n,) int8 (``data.guessable``), told by the retain rows."""
        return self._guessable.kinds(row)

    def kinds_of(self, stream: str, rows: Sequence[int]) -> list[np.ndarray]:
        """What ``kinds`` says of some rows of a split."""
        encoded = self.encoded(stream)
        return [self.kinds(encoded[i]) for i in rows]

    @cached_property
    def _guessable(self) -> Guessable:
        return Guessable(self.tokenizer, self.encoded("retain"))


APART = {
    ("forget", "retain"): "unlearning would teach what it removes",
    (HOLDOUT, "forget"): "a row that was trained on is not unseen",
    (HOLDOUT, "retain"): "a row that was trained on is not unseen",
}
"""Splits that may have no row in common, and why."""


def _refuse_overlap(splits: dict[str, list[Row]]) -> None:
    for (one, other), why in APART.items():
        there = {identity(row) for row in splits[other]}
        both = [row for row in splits[one] if identity(row) in there]
        if both:
            shown = str(next(iter(both[0].values())))[:60]
            raise UserError(
                f"{len(both)} of {len(splits[one])} {one} rows are in the {other} split too (first: '{shown}'): "
                f"{why}, so take them out of one file."
            )


def content_hash(rows: list[Row]) -> str:
    """First 16 hex digits of the SHA-256 of the rows as canonical JSON."""
    return text_hash(json.dumps(rows, sort_keys=True, ensure_ascii=False, separators=(",", ":")))
