"""A recipe whose networks have no numbers, for a dry run (``dry_run.py``)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.planning.stand_ins import Standing
from ofmu_pl.planning.unreal import unreal

ENOUGH = 2
"""How often a network's losses are computed in the same way: once more than once, since what is cut and gathered may
fail the second time."""


class Weightless(Standing):
    """A recipe of networks of fake tensors; losses that only repeat are not computed again.

    Args:
        recipe: The real recipe.
        exact: Whether graphs of graphs are taken, so that every loss counts.
    """

    def __init__(self, recipe: Network, *, exact: bool) -> None:
        super().__init__(recipe)
        self.exact = exact
        self._done: Counter[tuple[int, bool]] = Counter()

    def build(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the network's skeleton of fake tensors, in the mode that the real one is in."""
        return unreal(self.recipe.skeleton(datamodule, exact=exact))

    def sample_losses(self, module: nn.Module, batch: Batch) -> Tensor:
        """(b,) losses."""
        if self._repeats(module):
            return torch.zeros(len(next(iter(batch.values()))), requires_grad=True)
        return self.recipe.sample_losses(module, batch)

    def _repeats(self, module: nn.Module) -> bool:
        kind = id(module), torch.is_grad_enabled()
        self._done[kind] += 1
        return self._done[kind] > ENOUGH and not self.exact
