"""A model that is attacked, with its data: made anew for every attempt, since attacks spoil what they touch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from ofmu_pl.data.encoded import Encoded, collate
from ofmu_pl.data.sampler import evenly
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError, reason


def usable_device(name: str | None) -> str:
    """The name of a device that is there; another is a ``UserError``."""
    device = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:  # what torch raises for one or the other kind
        raise UserError(f"--device {device} cannot be had here ({reason(error)}): give cpu, or none.") from error
    return device


@dataclass
class Subject:
    """One model under attack.

    Attributes:
        recipe: Recipe of the model, which has its weights.
        data: A ``PairedDataModule`` after ``setup``.
        device: Torch's name of the device.
        others: Recipes of the models of the same rows by name (``unlearned``, ``retrained``, ``target``, ``second
            retrained``), for attacks that compare; the one under attack may be among them.
    """

    recipe: Network
    data: Any
    device: str = "cpu"
    others: Mapping[str, Network] = field(default_factory=dict)

    def build(self, of: str | None = None) -> nn.Module:
        """Make the model, or one of the ``others``, with float32 parameters, in eval mode; each call makes another."""
        recipe = self.recipe if of is None else self.others[of]
        return recipe.build(self.data, exact=False).to(self.device).eval()

    def places(self, split: str, most: int | None) -> list[int]:
        """Evenly spaced places of a split."""
        n = len(self.data.splits[split])
        return list(evenly(range(n), n if most is None else most))

    def batch(self, split: str, index: Sequence[int]) -> Batch:
        """The rows at some places of a split, as one batch on the device."""
        return self.placed(self.data.collate(split, [int(i) for i in index], 0))

    def batches(self, split: str, index: Sequence[int] | None = None) -> Iterator[Batch]:
        """Rows of a split in batches, in order."""
        places = range(len(self.data.splits[split])) if index is None else index
        for start in range(0, len(places), self.data.batch_size):
            yield self.batch(split, places[start : start + self.data.batch_size])

    def encoded_batches(self, rows: Sequence[Encoded], order: Sequence[int]) -> Iterator[Batch]:
        """Encoded rows in batches, in an order; ``ids`` are their places."""
        for start in range(0, len(order), self.data.batch_size):
            index = order[start : start + self.data.batch_size]
            yield self.collated([rows[i] for i in index], index)

    def collated(self, rows: Sequence[Encoded], ids: Sequence[int]) -> Batch:
        """Encoded rows as one batch on the device."""
        return self.placed(collate(rows, ids, self.data.tokenizer.pad_token_id))

    def placed(self, batch: Batch) -> Batch:
        """A batch on the device."""
        return {name: x.to(self.device) for name, x in batch.items()}

    def probabilities(self, model: nn.Module, split: str, index: Sequence[int] | None = None) -> np.ndarray:
        """exp(-loss) of rows of a split, all or some, (n,) float64: of an answer the geometric mean of its tokens."""
        with torch.no_grad():
            losses = [self.recipe.sample_losses(model, batch).double() for batch in self.batches(split, index)]
        return torch.cat(losses).neg().exp().cpu().numpy()
