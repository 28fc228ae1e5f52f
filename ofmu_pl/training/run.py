"""What a method may know of the run that it is part of: a trainer's, or one made by hand, of data alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ofmu_pl.core.ranks import ALONE, Ranks
from ofmu_pl.data.base import data_of
from ofmu_pl.training.budget import GradientBudget
from ofmu_pl.training.parallel import ranks_of, shard

_OLDER = {"16": "16-mixed", "bf16": "bf16-mixed", "32": "32-true", "64": "64-true"}
"""Lightning's older names of precisions, which it still takes."""


def precision_name(given: str | int | None) -> str:
    """Lightning's name of a precision as configurations give it: by an older name, or as ``None``, the default.

    Example:
        >>> precision_name("bf16"), precision_name(64), precision_name(None)
        ('bf16-mixed', '64-true', '32-true')
    """
    name = "32" if given is None else str(given)
    return _OLDER.get(name, name)


@dataclass
class Run:
    """A run; without a trainer it has one process, no autocast and no checkpoints.

    Attributes:
        data: The ``PairedDataModule`` that batches come from, after ``setup`` (in a plan, after ``blank``).
        ranks: The processes that share each batch.
        precision: Lightning's name of the precision.
        steps: Outer iterations in all; -1 where something else ends the run.
        budget: Gradients that the run may spend (``GradientBudget``); ``None``: as many as it takes.
        trainer: The trainer, if one makes the run.
        step: The present outer iteration, from 1.
        stopped: Whether the method has asked for the end of the run.
        why: Why, as the end of a sentence that begins with "The run ended since"; empty: nothing is to be said.
        checks_itself: Whether a method may spend gradients on checking its numbers.
        optimizers: The optimizer whose steps are counted, then those that ``iterate`` steps by itself.
        scheduler: Scheduler of the first optimizer, stepped once per iteration; ``None``: the rate is constant.
    """

    data: Any
    ranks: Ranks = ALONE
    precision: str = "32-true"
    steps: int = -1
    budget: float | None = None
    trainer: pl.Trainer | None = None
    step: int = 0
    stopped: bool = False
    why: str = ""
    checks_itself: bool = True
    optimizers: list[Optimizer] = field(default_factory=list)
    scheduler: LRScheduler | None = None
    _casts: bool = field(default=True, init=False, repr=False)

    @classmethod
    def of(cls, trainer: pl.Trainer) -> Run:
        """The run of a trainer whose processes are started.

        Raises:
            UserError: The strategy has no manual optimization (``parallel.ranks_of``).
        """
        budgets = [c.gradients for c in trainer.callbacks if isinstance(c, GradientBudget)]  # type: ignore[attr-defined]
        precision, most = str(trainer.precision), min(budgets, default=None)
        data, epochs = data_of(trainer), trainer.max_epochs or -1
        lengths = [trainer.max_steps, epochs * data.iterations_per_epoch]
        steps = min((length for length in lengths if length >= 0), default=-1)
        return cls(data, ranks_of(trainer.strategy), precision, steps, most, trainer)

    def stop(self, why: str = "") -> None:
        """End the run after the present iteration; the first reason counts."""
        if not self.stopped:
            self.stopped, self.why = True, why
        if self.trainer is not None:
            self.trainer.should_stop = True

    def advance(self, **given: float) -> None:
        """Step the first optimizer with what it is ``given``, by the trainer, if there is one: it counts steps."""
        counted: Any = self.optimizers if self.trainer is None else self.trainer.lightning_module.optimizers()
        (counted[0] if isinstance(counted, list) else counted).step(**given)

    def forward_context(self) -> AbstractContextManager[Any]:
        """The context that the precision puts around forward passes; none inside of ``full_precision``."""
        if self.trainer is None or not self._casts:
            return nullcontext()
        return self.trainer.precision_plugin.forward_context()

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """A context in which forward passes are not autocast, whatever the run's precision."""
        self._casts = False
        try:
            yield
        finally:
            self._casts = True

    def convert(self, network: nn.Module) -> nn.Module:
        """Convert a network to the precision's types."""
        return network if self.trainer is None else self.trainer.precision_plugin.convert_module(network)

    def build(self, recipe: Any, *, exact: bool) -> nn.Module:
        """Make a network from its recipe on the host, in shards where the ranks hold them; the caller moves it."""
        build = partial(recipe.build_in_shards, cut=self.shard) if self.ranks.sharded else recipe.build
        with torch.device("cpu"):  # Lightning asks for a network on the GPU, where random numbers are others
            network: nn.Module = build(self.data, exact=exact)
        return network

    def shard(self, network: nn.Module) -> None:
        """Cut a network's parameters among the ranks if they hold shards."""
        if self.ranks.sharded and self.trainer is not None:
            shard(network, self.trainer.strategy)

    @property
    def resumed_from(self) -> Path | None:
        """The checkpoint that the run goes on from."""
        return None if self.trainer is None or not self.trainer.ckpt_path else Path(self.trainer.ckpt_path)

    @property
    def checkpoint_folders(self) -> set[Path]:
        """The folders of the run's checkpoints: of the one to go on from, and of those that callbacks write."""
        callbacks = [] if self.trainer is None else self.trainer.checkpoint_callbacks
        written = [getattr(callback, "dirpath", None) for callback in callbacks]
        folders = {self.resumed_from.parent} if self.resumed_from else set()
        return folders | {Path(folder) for folder in written if folder}
