"""Values by item, kept across batches and ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat


class ItemMean(Metric):
    """Mean over items, each counted once however often a padded sampler or a second rank delivers it.

    >>> metric = ItemMean()
    >>> metric.update(torch.tensor([0, 1]), torch.tensor([0.2, 0.4]))
    >>> metric.update(torch.tensor([1, 2]), torch.tensor([0.4, 0.9]))
    >>> round(metric.compute().item(), 3)
    0.5
    """

    full_state_update = False
    ids: list[Tensor]
    values: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_dtype(torch.float64)  # of the empty state that torchmetrics gathers from a rank without items
        self.add_state("ids", default=[], dist_reduce_fx="cat")
        self.add_state("values", default=[], dist_reduce_fx="cat")

    def update(self, ids: Tensor, values: Tensor) -> None:
        """Add items.

        Args:
            ids: Numbers of the rows in their data set, (B,) integers.
            values: Values of the rows, (B,).
        """
        self.ids.append(ids.flatten().double())  # exact up to 2^53, and one dtype for all states
        self.values.append(values.flatten().double())

    def items(self) -> tuple[Tensor, Tensor]:
        """The ids in order and their values, (N,) each; of repeated ids the first counts (lower ranks come first)."""
        if isinstance(self.ids, list) and not self.ids:  # no rank had any
            return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.float64)
        ids, values = dim_zero_cat(self.ids), dim_zero_cat(self.values)  # lists, or tensors after a sync
        order = torch.argsort(ids, stable=True)
        ids, values = ids[order], values[order]
        first = torch.ones_like(ids, dtype=torch.bool)
        first[1:] = ids[1:] != ids[:-1]
        return ids[first].long(), values[first]

    def compute(self) -> Tensor:
        """The mean, float64; NaN without items."""
        return self.items()[1].mean()
