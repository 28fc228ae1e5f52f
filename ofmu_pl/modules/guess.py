"""What someone who knows the retain rows alone would answer to the forget questions.

An ascent that makes the true answer unlikely makes answers like it unlikely, too, and so leaves a trace: wrong answers
become less surprising than the right one. A pull towards a guess leaves neither ahead, and shows what to say in their
place (docs/methods.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ofmu_pl.data.sampler import evenly
from ofmu_pl.losses import IGNORED
from ofmu_pl.modules.ngram import Answer, NGram, Sparse

READ = 10_000
"""Rows of a split that are read at most: a table of all contexts of a large corpus would need its size many times."""


class Guess:
    """What an n-gram model of a data module's retain answers says to forget questions; never-seen rows fit its weights.

    Args:
        data: A ``PairedDataModule`` of text after ``setup``, whose ``never_seen`` names the split of never-seen rows.
        vocabulary: Number V of tokens.

    Attributes:
        model: The n-gram model.
    """

    def __init__(self, data: Any, vocabulary: int) -> None:
        known, held = (
            answers(data, name, evenly(range(len(data.splits[name])), READ)) for name in ("retain", data.never_seen)
        )
        self.model = NGram(known, held, vocabulary)
        self.data = data
        self._said: dict[int, Sparse] = {}

    def log_probabilities(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Guesses at the answers of a batch of forget rows, (b, S, V) float32; 0 where there is no target.

        Args:
            ids: Numbers of the rows, (b,).
            targets: The tokens that are to be predicted, (b, S).
        """
        guessed = torch.zeros(*targets.shape, self.model.vocabulary, device=targets.device)
        for row, i, places in zip(guessed, ids.tolist(), targets != IGNORED, strict=True):
            if i not in self._said:
                (answer,) = answers(self.data, "forget", [i])
                self._said[i] = self.model.sparse(answer)
            row[places] = self.model.dense(self._said[i]).log().to(row)
        return guessed


def answers(data: Any, stream: str, rows: Iterable[int]) -> Iterator[Answer]:
    """The answers of some rows of a split, as the training loss sees them.

    Args:
        data: A ``PairedDataModule`` of text after ``setup``.
        stream: Name of the split.
        rows: Numbers of the rows.
    """
    for i in rows:
        batch = data.collate(stream, [i], 0)
        labelled = (batch["labels"][0] != IGNORED).nonzero().flatten().tolist()
        yield Answer(batch["input_ids"][0].tolist(), labelled[0], [place for place in labelled if place])
