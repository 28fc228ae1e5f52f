"""How long a run takes: a sentence, and one progress bar over all iterations; Lightning's starts anew every epoch."""

import sys
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import TQDMProgressBar
from tqdm import tqdm

from ofmu_pl.support.terminal import span

TIMED = 6
"""Iterations after which a run says how long it will take; the first, in which much is made ready, is not timed."""


def forecast(ends: Sequence[float], left: int, period: int, evaluation: float | None) -> str:
    """Say how long the rest of a run takes, by when its first iterations ended; one of a period may be longer.

    >>> forecast([3.0, 3.5, 4.0, 4.6], 316, 5, 40.0)
    'Up to 3 min: at most 316 more iterations of 0.5 s (every 5th may take longer), and an evaluation of 40 s.'
    """
    each = median(later - earlier for earlier, later in pairwise(ends))
    longer = f" (every {period}th may take longer)" if period > 1 else ""
    last = "the evaluation" if evaluation is None else f"an evaluation of {span(evaluation)}"
    total = span(left * each + (evaluation or 0.0))
    return f"Up to {total}: at most {left} more iterations of {span(each)}{longer}, and {last}."


class IterationProgressBar(TQDMProgressBar):
    """Shows iterations done, time left, losses, similarity, |grad Phi|, rho or reach, and seconds per iteration."""

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
            mininterval=0.5 if sys.stdout.isatty() or "ipykernel" in sys.modules else 2,  # a log file needs no film
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
        if trainer.should_stop:  # a one-shot method is done, a goal is reached or a budget is spent
            self.train_progress_bar.total = self.train_progress_bar.n + 1
        self.train_progress_bar.update()

    def on_train_epoch_end(self, *_: object) -> None:
        """Show nothing between iterations."""

    def on_exception(self, *_: object) -> None:
        """Leave the bar as it stands."""
        self.train_progress_bar.close()
