"""A recipe whose networks have no numbers."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.planning.ledger import Ledger
from ofmu_pl.planning.unreal import unreal

ENOUGH = 2
"""How often a network's losses are computed in the same way: once more than once, since what is cut and gathered may
fail the second time."""


class Weightless:
    """Makes networks of fake tensors in a recipe's place; losses that only repeat are not computed again.

    Args:
        recipe: The real recipe.
        ledger: Told whose memory it is.
        exact: Whether graphs of graphs are taken, so that every loss counts.

    Attributes:
        stand_in: The recipe with networks of this kind.
        real: Whether losses are computed at all.
    """

    def __init__(self, recipe: Network, ledger: Ledger, *, exact: bool) -> None:
        self.recipe, self.ledger, self.exact = recipe, ledger, exact
        self.real, self._built = True, False
        self._done: Counter[tuple[int, bool]] = Counter()
        self.stand_in = copy.copy(recipe)
        # A classifier knows the number of its classes from what it has made, which is asked of the real recipe.
        vars(self.stand_in).update(build=self.build, sample_losses=self.sample_losses, uniform_loss=recipe.uniform_loss)

    def build(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the network's skeleton of fake tensors: the network to train, then further copies."""
        ledger = self.ledger
        with ledger.counting("copies" if self._built else "parameters"):
            network = unreal(self.recipe.skeleton(datamodule, exact=exact))
        self._built = True
        network.register_forward_pre_hook(lambda *_: ledger.begin_graph())
        network.register_forward_hook(lambda *_: None if torch.is_grad_enabled() else ledger.end_graph())
        return network

    def sample_losses(self, module: nn.Module, batch: Batch) -> Tensor:
        """(b,) losses, or something of that shape without a graph."""
        kind = id(module), torch.is_grad_enabled()
        self._done[kind] += 1
        if self.real and (self.exact or self._done[kind] <= ENOUGH):
            return self.recipe.sample_losses(module, batch)
        if self.real:
            self.ledger.repeat()
        return torch.zeros(len(next(iter(batch.values()))), requires_grad=True)
