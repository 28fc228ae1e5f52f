"""The run of a Lightning trainer, as its method knows it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from torch import nn

from ofmu_pl.data.base import data_of
from ofmu_pl.training.budget import GradientBudget
from ofmu_pl.training.parallel import ranks_of, shard
from ofmu_pl.training.run import Run


class TrainerRun(Run):
    """The part of a trainer that a method may know of.

    Args:
        trainer: The trainer, once its processes are started.

    Raises:
        UserError: The strategy has no manual optimization (``parallel.ranks_of``).
    """

    def __init__(self, trainer: pl.Trainer) -> None:
        super().__init__(data_of(trainer), ranks_of(trainer.strategy), str(trainer.precision), trainer.max_steps)
        budgets = [c.gradients for c in trainer.callbacks if isinstance(c, GradientBudget)]  # type: ignore[attr-defined]
        self.budget = min(budgets, default=None)
        self._trainer = trainer

    def stop(self) -> None:
        """End the trainer's run after the present iteration."""
        super().stop()
        self._trainer.should_stop = True

    def advance(self) -> None:
        """Step the first optimizer, by the trainer where the step is to be counted."""
        if self.step > self._trainer.global_step:
            counted = self._trainer.lightning_module.optimizers()
            (counted[0] if isinstance(counted, list) else counted).step()
        else:  # the iteration is made again
            super().advance()

    def autocast(self) -> AbstractContextManager[Any]:
        """The context that the trainer's precision puts around forward passes."""
        return self._trainer.precision_plugin.forward_context()

    def convert(self, network: nn.Module) -> nn.Module:
        """Convert a network to the types of the trainer's precision."""
        return self._trainer.precision_plugin.convert_module(network)

    def shard(self, network: nn.Module) -> bool:
        """Cut the network by FSDP2 if that is the trainer's strategy; returns whether it is."""
        if self.ranks.sharded:
            shard(network, self._trainer.strategy)
        return self.ranks.sharded

    @property
    def resumed_from(self) -> Path | None:
        """The trainer's checkpoint to go on from."""
        return Path(self._trainer.ckpt_path) if self._trainer.ckpt_path else None

    @property
    def checkpoint_folders(self) -> set[Path]:
        """The folders of the trainer's checkpoints: the one to go on from, and those that callbacks write."""
        folders = {self.resumed_from.parent} if self.resumed_from else set()
        written = (getattr(callback, "dirpath", None) for callback in self._trainer.checkpoint_callbacks)
        return folders | {Path(folder) for folder in written if folder}
