"""Lets a run whose iterations are all done begin and end, which Lightning would skip."""

from __future__ import annotations

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_info


class Ended(pl.Callback):
    """Lets training begin and end without an iteration, so that callbacks measure and export the model.

    Lightning calls neither ``on_train_start`` nor ``on_train_end`` of a run that starts at ``max_steps``.
    """

    def __init__(self) -> None:
        self._most = 0

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Lift the limit, which Lightning checks before anything else."""
        self._most, trainer.fit_loop.epoch_loop.max_steps = trainer.max_steps, -1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore the limit, and stop."""
        trainer.fit_loop.epoch_loop.max_steps = self._most
        trainer.should_stop = True
        rank_zero_info(f"All {trainer.global_step} iterations are done: evaluation and export are what is left.")
