"""One bar over all outer iterations with the last number of each kind; Lightning's own starts anew every epoch."""

from __future__ import annotations

import sys
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm


class IterationProgressBar(ProgressBar):
    """Shows iterations done, time left, losses, similarity, |grad Phi|, rho and seconds an iteration."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: tqdm | None = None
        self._enabled = True

    def disable(self) -> None:
        """Show nothing (Lightning's hook for other ranks)."""
        self._enabled = False

    def enable(self) -> None:
        """Show the bar."""
        self._enabled = True

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Open the bar where the run stands, after the first evaluation, so that its clock is the training's."""
        if self._bar is not None:
            return
        total = trainer.max_steps if trainer.max_steps > 0 else None
        self._bar = tqdm(
            total=total,
            initial=trainer.global_step,
            desc=type(pl_module).__name__,
            unit="it",
            disable=not self._enabled,
            dynamic_ncols=True,
            file=sys.stdout,
            mininterval=0.5 if sys.stdout.isatty() else 10,  # a log file needs no film
        )

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """One iteration more."""
        if self._bar is not None:
            metrics = {k: v for k, v in self.get_metrics(trainer, pl_module).items() if k != "v_num"}
            self._bar.set_postfix(metrics, refresh=False)
            self._bar.update()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the finished bar."""
        self._close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Leave the bar where it was."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
            self._bar = None
