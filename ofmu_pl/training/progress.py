"""One progress bar over all outer iterations; Lightning's own starts anew every epoch."""

from __future__ import annotations

import sys
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import TQDMProgressBar
from tqdm import tqdm


class IterationProgressBar(TQDMProgressBar):
    """Shows iterations done, time left, losses, similarity, |grad Phi|, rho and seconds per iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.train_progress_bar = tqdm(disable=True)  # an exception before training finds a bar to close

    def init_train_tqdm(self) -> tqdm:
        """Return a bar that begins at the run's present iteration."""
        return tqdm(
            total=self.trainer.max_steps if self.trainer.max_steps > 0 else None,
            initial=self.trainer.global_step,
            desc=type(self.trainer.lightning_module).__name__,
            unit="it",
            disable=self.is_disabled,
            dynamic_ncols=True,
            file=sys.stdout,
            mininterval=0.5 if sys.stdout.isatty() or "ipykernel" in sys.modules else 10,  # a log file needs no film
        )

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """Return what the module logs for the bar, without the logger's version, which the run's folder shows."""
        return {k: v for k, v in super().get_metrics(trainer, pl_module).items() if k != "v_num"}

    def on_train_start(self, *_: object) -> None:
        """Open no bar yet: the first evaluation comes now, and the bar's clock shall count the training alone."""

    def on_train_epoch_start(self, *_: object) -> None:
        """Open the bar before the first iteration; later epochs go on with it."""
        if self.train_progress_bar.disable:
            self.train_progress_bar = self.init_train_tqdm()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        """Count one more iteration and show its numbers, at most as often as ``mininterval`` says."""
        self.train_progress_bar.set_postfix(self.get_metrics(trainer, pl_module), refresh=False)
        self.train_progress_bar.update()

    def on_train_epoch_end(self, *_: object) -> None:
        """Show nothing between iterations."""

    def on_exception(self, *_: object) -> None:
        """Leave the bar as it stands."""
        self.train_progress_bar.close()
