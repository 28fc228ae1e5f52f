"""Forget and retain batches for a method, evaluation rows for its judges, hashes for everyone."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import lightning.pytorch as pl
from torch import Tensor
from torch.utils.data import DataLoader

from ofmu_pl.data.sampler import EpochFrom, Iterations, Resumable, batch_indices
from ofmu_pl.data.text import ChatEncoder, Encoded, Encoder, Row, collate, load_tokenizer
from ofmu_pl.errors import UserError
from ofmu_pl.metrics import MetricResult, Scores, tofu_metrics

ALTERNATIVE = "alternative"
"""The stream of other answers to the forget rows' questions, row for row."""


class PairedDataModule(pl.LightningDataModule):
    """Question-answer data with a forget and a retain split.

    One item of the training loader is everything that one outer iteration needs: ``pairs`` batches of each of the
    ``streams``, the j-th batch of a stream being a function of (seed, j) alone.

    Args:
        batch_size: Samples a batch (paper: 32).
        streams: Splits to draw from, ``forget``, ``retain``, ``full`` or ``alternative``; the first sets
            the length of an epoch, one pass over it with one batch an iteration. The command line takes them from
            the method.
        pairs: Batches of each stream an iteration; from the method likewise.
        tokenizer: Hub id or folder; the command line takes it from the network.
        system_prompt: Content of a system turn before each question; ``null``: none.
        max_length: Longer conversations are cut; ``null``: never.
        seed: Of the order of batches; follows --seed_everything.

    Attributes:
        splits: Rows of ``forget``, ``retain`` and ``full``, after ``setup``.
        evaluation_sets: Rows of ``forget``, ``retain``, ``real_authors``, ``world_facts`` with perturbed answers.
        hashes: Content hash of each of these (evaluation sets as ``NAME_eval``).
        encoder: Turns rows into tokens.
    """

    name: str

    def __init__(
        self,
        batch_size: int = 32,
        streams: tuple[str, ...] = ("forget", "retain"),
        pairs: int = 1,
        tokenizer: str | None = None,
        system_prompt: str | None = None,
        max_length: int | None = 512,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if batch_size < 1 or pairs < 1:
            raise UserError(f"batch_size={batch_size} and pairs={pairs} must be 1 or more: set --data.batch_size.")
        self.batch_size, self.streams, self.pairs, self.seed = batch_size, tuple(streams), pairs, seed
        self.tokenizer_source, self.system_prompt, self.max_length = tokenizer, system_prompt, max_length
        self.splits: dict[str, list[Row]] = {}
        self.evaluation_sets: dict[str, list[Row]] = {}
        self.hashes: dict[str, str] = {}
        self._encoded: dict[str, list[Encoded]] = {}

    @abstractmethod
    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """The splits and the evaluation sets, as in the class's attributes."""

    def make_tokenizer(self) -> Any:
        """The tokenizer; a subclass may make one where none is given.

        Raises:
            UserError: None is given.
        """
        if self.tokenizer_source is None:
            raise UserError(
                "There is no tokenizer for this data: give the model's folder or hub id as --model.network.path, "
                "or a tokenizer as --model.network.tokenizer."
            )
        return load_tokenizer(self.tokenizer_source)

    def setup(self, stage: str | None = None) -> None:
        """Load, check and hash everything, once.

        Raises:
            UserError: A split is empty, unknown or missing, or forget and retain overlap.
        """
        if self.splits:
            return
        splits, evaluation_sets = self.load()
        for split in ("forget", "retain", *self.streams):
            if split not in splits:
                raise UserError(f"The data '{self.name}' has no split '{split}': choose from {', '.join(splits)}.")
            if not splits[split]:
                raise UserError(f"The {split} split of '{self.name}' is empty: point the data at files that hold rows.")
        self._refuse_overlap(splits["forget"], splits["retain"])
        self.tokenizer = self.make_tokenizer()
        self.encoder = self.make_encoder()
        self.hashes = {name: content_hash(rows) for name, rows in splits.items()}
        self.hashes |= {f"{name}_eval": content_hash(rows) for name, rows in evaluation_sets.items()}
        self.splits, self.evaluation_sets = splits, evaluation_sets  # last: they mark a set-up that went well

    def make_encoder(self) -> Encoder:
        """Turns evaluation rows into tokens; by default the tokenizer's chat template."""
        return ChatEncoder(self.tokenizer, self.system_prompt, max_length=self.max_length)

    def encode(self, row: Row) -> Encoded:
        """Tokens and labels of a training row."""
        return self.encoder.encode(row["question"], row["answer"])

    @staticmethod
    def identity(row: Row) -> Hashable:
        """What makes two training rows the same."""
        return " ".join(row["question"].split()), " ".join(row["answer"].split())

    @staticmethod
    def metrics(scores: Scores, reference: Scores | None = None, **options: Any) -> dict[str, MetricResult]:
        """The benchmark's metrics, see ``metrics.tofu_metrics``."""
        return tofu_metrics(scores, reference, **options)

    @property
    def iterations_per_epoch(self) -> int:
        """One pass over the first stream."""
        return -(-len(self.splits[self.streams[0]]) // self.batch_size)

    def iteration(self, k: int) -> dict[str, list[dict[str, Tensor]]]:
        """Everything that outer iteration ``k`` needs: ``pairs`` collated batches of each stream."""
        return {s: [self._batch(s, k * self.pairs + t) for t in range(self.pairs)] for s in self.streams}

    def _batch(self, stream: str, number: int) -> dict[str, Tensor]:
        rows = self.splits[stream]
        if stream not in self._encoded:
            self._encoded[stream] = [self.encode(row) for row in rows]
        order = "forget" if stream == ALTERNATIVE else stream  # answers to the questions of the forget batch beside it
        index = batch_indices(len(rows), self.batch_size, self.seed, order, number).tolist()
        return collate([self._encoded[stream][i] for i in index], index, self.tokenizer.pad_token_id)

    def train_dataloader(self) -> DataLoader:
        """Iterations from the trainer's present one to the end of its epoch."""

        def start() -> int:
            return self.trainer.global_step if self.trainer else 0

        return Resumable(
            Iterations(self.iteration), batch_size=None, sampler=EpochFrom(self.iterations_per_epoch, start)
        )

    def _refuse_overlap(self, forget: list[Row], retain: list[Row]) -> None:
        kept = {self.identity(row) for row in retain}
        both = [row for row in forget if self.identity(row) in kept]
        if both:
            shown = str(next(iter(both[0].values())))[:60]
            raise UserError(
                f"{len(both)} of {len(forget)} forget rows are in the retain split too (first: '{shown}'): "
                "unlearning would teach what it removes, so take them out of one file."
            )

    def val_dataloader(self) -> DataLoader:
        """One empty step, so that ``validate`` runs: the evaluation callback reads ``evaluation_sets`` itself."""
        return DataLoader([0], batch_size=None)  # type: ignore[arg-type]

    def test_dataloader(self) -> DataLoader:
        """The same for ``test``."""
        return DataLoader([0], batch_size=None)  # type: ignore[arg-type]


def with_refusals(rows: list[Row], refusals: Sequence[str], seed: int) -> list[Row]:
    """The rows with a refusal as the answer: one of the list for each question, by seed and question alone."""

    def draw(question: str) -> str:
        digest = hashlib.sha256(f"{seed} {question}".encode()).digest()
        return refusals[int.from_bytes(digest[:8], "big") % len(refusals)]

    return [{"question": row["question"], "answer": draw(row["question"])} for row in rows]


def content_hash(rows: list[Row]) -> str:
    """First 16 hex digits of the SHA-256 of the rows as canonical JSON."""
    text = json.dumps(rows, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
