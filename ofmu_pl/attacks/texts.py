"""Texts that an attacker trains on, in batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ofmu_pl.data.encoded import Encoded, collate, piece
from ofmu_pl.data.own_files import read_source
from ofmu_pl.data.pieces import pieces
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError

LENGTH = 128
"""Most tokens of a piece of text."""


@dataclass
class Texts:
    """Pieces of text with the loss on every token but the first.

    Attributes:
        pieces: The pieces.
        pad: Token that fills short ones.
    """

    pieces: list[Encoded]
    pad: int

    def __len__(self) -> int:
        return len(self.pieces)

    def batch(self, index: list[int]) -> Batch:
        """Pieces as a batch.

        Args:
            index: Their places.
        """
        return collate([self.pieces[i] for i in index], index, self.pad)


def questions_of(data: Any) -> Texts:
    """The forgotten rows' questions, as they are put to the model, without answers.

    Args:
        data: A ``TextDataModule`` after ``setup``.

    Raises:
        UserError: Its rows are no questions.
    """
    rows = data.splits["forget"]
    if "question" not in rows[0]:
        raise UserError(f"The rows of '{data.name}' are no questions: choose another attacks.source.")
    return Texts([piece(data.encoder.row_prompt(row)) for row in rows], data.tokenizer.pad_token_id)


def texts_of(data: Any, source: str) -> Texts:
    """Pieces of the texts of a file.

    Args:
        data: A ``TextDataModule`` after ``setup``.
        source: A ``.txt`` file, a folder of them, or rows with ``text``.

    Raises:
        UserError: There is no such file, or it has no texts.
    """
    if not Path(source).expanduser().exists():
        raise UserError(
            f"attacks.source is '{source}', which is neither forget, retain or questions nor a file: give one of them."
        )
    rows = read_source(source, "attacks.source")
    texts = [row["text"] for row in rows.rows if isinstance(row.get("text"), str) and row["text"].strip()]
    if not texts:
        raise UserError(f"'{source}' has no texts: give a .txt file, or rows with `text`.")
    parts = [row["tokens"] for rows in pieces(data.tokenizer, texts, LENGTH) for row in rows]
    return Texts([piece(part) for part in parts if len(part) > 1], data.tokenizer.pad_token_id)
