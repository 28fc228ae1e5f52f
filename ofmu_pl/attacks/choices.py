"""Right and wrong answers of one form to the same question, so that the form does not tell which is right.

Perturbed answers have the form of the paraphrase (TOFU, Authors). Beside the answer itself, their form alone would
show even a model that knows nothing which is right. So the right answer is the paraphrase where there is one.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from torch import nn

from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data.encoded import Encoded, Row, wrong_answers_of
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError

Choices = list[list[Encoded]]  # of each row the right answer, then the wrong ones


def choices_of(data: TextDataModule, rows: Sequence[Row], attack: str) -> Choices:
    """The answers to choose from; rows without wrong answers are a ``UserError``."""
    if not rows or not all(wrong_answers_of(row) for row in rows):
        raise UserError(
            f"The rows of '{data.name}' have no wrong answers (perturbed_answer), which the attack '{attack}' lets a "
            "model choose among: add them, or take the attack out of the list."
        )
    encoded = [data.encoder.encode_row(row) for row in rows]
    return [e[-1 - len(wrong_answers_of(row)) :] for e, row in zip(encoded, rows, strict=True)]


def batches_of(subject: Subject, choices: Choices) -> Iterator[Batch]:
    """All answers in batches of like length; ``ids`` are their places, row after row."""
    flat = list(chain.from_iterable(choices))
    return subject.encoded_batches(flat, sorted(range(len(flat)), key=lambda i: len(flat[i].input_ids)))


def chosen(subject: Subject, model: nn.Module, choices: Choices) -> np.ndarray:
    """1 where the right answer is likelier than every wrong one, else 0, (n,); a tie is wrong, a broken loss NaN."""
    losses = np.empty(sum(map(len, choices)))
    with torch.no_grad():
        for batch in batches_of(subject, choices):
            losses[batch["ids"].cpu()] = subject.recipe.sample_losses(model, batch).double().cpu().numpy()
    rows = np.split(losses, np.cumsum([len(row) for row in choices])[:-1])
    return np.array([float(row[0] < row[1:].min()) if np.isfinite(row).all() else np.nan for row in rows])
