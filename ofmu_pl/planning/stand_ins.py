"""Stand-ins for the parts of a real run while it is rehearsed (``rehearsal.py``); they tell the ledger of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ofmu_pl.core.ranks import Ranks
from ofmu_pl.core.vectors import Vector, add_, zeros_like
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.planning.ledger import Ledger


class Standing(Network):
    """A recipe in the place of a real one, which it asks for everything that it does not do itself.

    Args:
        recipe: The real recipe.
    """

    def __init__(self, recipe: Network) -> None:
        self.recipe = recipe
        self.modality = recipe.modality  # type: ignore[misc]
        self.tokenizer_source, self.adds_adapters = recipe.tokenizer_source, recipe.adds_adapters

    def __getattr__(self, name: str) -> Any:
        """What only some recipes have."""
        if name == "recipe":  # it is being copied
            raise AttributeError(name)
        return getattr(self.recipe, name)

    def skeleton(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the real skeleton."""
        return self.recipe.skeleton(datamodule, exact=exact)

    def save(self, module: nn.Module, folder: Path, datamodule: Any) -> None:
        """Save nothing, since there are no weights."""

    def logits(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the real network's logits."""
        return self.recipe.logits(module, batch)

    def uniform_loss(self, module: nn.Module) -> float:
        """The real network's loss of a blind guess."""
        return self.recipe.uniform_loss(module)

    def statistics(self, module: nn.Module, stream: str) -> AbstractContextManager[None]:
        """The real network's policy for running statistics."""
        return self.recipe.statistics(module, stream)

    def differentiable(self, module: nn.Module) -> AbstractContextManager[None]:
        """The real network's context for derivatives."""
        return self.recipe.differentiable(module)

    def split(self, batch: Batch, size: int | None) -> list[Batch]:
        """Cut a batch into the real micro-batches."""
        return self.recipe.split(batch, size)


class Unloaded(Standing):
    """A recipe whose networks are skeletons.

    Args:
        recipe: The real recipe.
        ledger: Told of the memory of losses that are not evaluated again.
        saving: Leave out what would only repeat: a first-order engine's graph never outlives its loss, so one
            evaluation of the most samples stands for all; with several micro-batches the first of each batch does.
        exact: Whether graphs of graphs are taken.
    """

    def __init__(self, recipe: Network, ledger: Ledger, *, saving: bool, exact: bool) -> None:
        super().__init__(recipe)
        self.ledger, self.saving, self.exact = ledger, saving, exact
        self.real = True
        self._built, self._most = False, 0
        self._first: list[Batch] = []

    def build(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """A skeleton: the network to train, then frozen copies of it."""
        with self.ledger.counting("copies" if self._built else "parameters"):
            network = self.skeleton(datamodule, exact=exact)
        self._built = True
        return network

    def split(self, batch: Batch, size: int | None) -> list[Batch]:
        """Cut a batch into the real micro-batches, and remember the first."""
        parts: list[Batch] = self.recipe.split(batch, size)
        self._first.append(parts[0])
        return parts

    def sample_losses(self, module: nn.Module, batch: Batch) -> Tensor:
        """(b,) losses, or something of that shape without a graph."""
        rows = len(next(iter(batch.values())))
        new = any(batch is part for part in self._first) if self.exact else rows > self._most
        if self.real and (new or not self.saving):
            self._most = max(self._most, rows)
            with self.ledger.counting("activations"):
                return self.recipe.sample_losses(module, batch)
        if self.real and not self.exact:
            self.ledger.repeat("activations")
        return torch.zeros(rows, device="meta", requires_grad=True)


@dataclass(frozen=True)
class Watching(Ranks):
    """Processes that are not there: shares batches, communicates nothing, and tells the ledger what is a graph.

    Attributes:
        ledger: Counts.
        gathered: Bytes that FSDP2 holds whole while a loss is differentiated.
    """

    ledger: Ledger | None = None
    gathered: float = 0

    def sum_(self, vector: Vector) -> None:
        """Tell the ledger of the buffer alone."""
        if self.size > 1 and not self.sharded:
            torch.cat([x.reshape(-1) for x in vector])

    @contextmanager
    def adding(self, out: Vector) -> Iterator[Vector]:
        """Yield the vector to add to, as real ranks do; what is made meanwhile belongs to graphs."""
        assert self.ledger is not None
        part = out if self.size == 1 or self.sharded else zeros_like(out)
        self.ledger.change("gathered", self.gathered)
        with self.ledger.counting("activations"):
            yield part
        self.ledger.change("gathered", -self.gathered)
        if part is not out:
            self.sum_(part)
            add_(out, [(1.0, part)])

    def total(self, value: float) -> float:
        """The value as it is."""
        return value


class Graphs(TorchFunctionMode):
    """A mode in which what autograd makes and keeps belongs to graphs.

    Args:
        ledger: Told of it.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count what a call of ``torch.autograd.grad`` makes among activations."""
        with self.ledger.counting("activations") if func is torch.autograd.grad else nullcontext():
            return func(*args, **kwargs or {})


def know_losses(module: Any, data: Any) -> None:
    """Give a method zeros for the losses of rows under the target, which it would else compute and keep on disk.

    Args:
        module: The method.
        data: Its data, set up or blank.
    """
    if isinstance(module, TwoTerms):
        module.reference_nll |= {stream: torch.zeros(len(data.splits[stream])) for stream in module.per_item_reference}
