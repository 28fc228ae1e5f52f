"""Runs that can be gone on with: room for checkpoints, the settings in each, and one more when SIGTERM comes."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl.checkpoints import SETTINGS, check_room
from ofmu_pl.core.derivatives import trainable

EXIT_CODE = 128 + signal.SIGTERM


class Resumable(pl.Callback):
    """Sees that a run can be interrupted.

    On SIGTERM, as schedulers send it before they take a machine away, the run finishes its iteration, writes a
    checkpoint from which it goes on bit for bit, and exits with code 143. Lightning's own handler exits without one and
    lets ranks wait for each other; this one takes its place while training.

    Args:
        settings: Kept in every checkpoint (``checkpoints.settings``).
    """

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self._asked = False
        self._kept: Any = None

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict) -> None:
        """Add the settings."""
        checkpoint[SETTINGS] = self.settings

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Refuse a disk that is too small.

        Raises:
            UserError: See ``checkpoints.check_room``.
        """
        log_dir, keeper = trainer.log_dir, _keeper(trainer)
        if log_dir is None or keeper is None or keeper.save_top_k == 0 or not trainer.is_global_zero:
            return
        weights = 4.0 * sum(p.numel() for p in pl_module.network.parameters())
        moments = 8.0 * sum(p.numel() for p in trainable(pl_module.network))  # of Adam, in float32
        check_room(Path(log_dir), weights + moments, max(keeper.save_top_k, 1), weights)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Listen."""
        self._asked = False
        if threading.current_thread() is threading.main_thread():
            self._kept = signal.signal(signal.SIGTERM, self._note)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write and leave, all ranks together if one was asked.

        Raises:
            SystemExit: With ``EXIT_CODE``.
        """
        if not pl_module.ranks.total(float(self._asked)):
            return
        keeper = _keeper(trainer)
        path = Path(keeper.dirpath or ".") / f"step={trainer.global_step}.ckpt" if keeper else None
        if path is not None:
            trainer.save_checkpoint(path)
        if trainer.is_global_zero:
            where = f"'{path}' holds it all: go on with --ckpt_path last" if path else "there is no checkpoint callback"
            sys.stderr.write(f"ofmu_pl: stopped by SIGTERM after iteration {trainer.global_step}; {where}.\n")
        raise SystemExit(EXIT_CODE)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Listen no more: what is left can be had by ``validate``."""
        self._deafen()

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """The same after an error."""
        self._deafen()

    def _deafen(self) -> None:
        if self._kept is not None:
            signal.signal(signal.SIGTERM, self._kept)
            self._kept = None

    def _note(self, *_: Any) -> None:
        self._asked = True


def _keeper(trainer: pl.Trainer) -> ModelCheckpoint | None:
    return next((c for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)), None)
