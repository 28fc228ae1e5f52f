"""Runs that can be resumed: settings in each checkpoint, one more checkpoint when the run is stopped, and the end."""

import errno
import os
import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_info

from ofmu_pl.support.errors import UserError
from ofmu_pl.training.checkpoints import ENDED, SETTINGS, WHY
from ofmu_pl.training.interrupts import Interrupted, end, kill, listening

_AUTOMATIC = {"GradientAccumulationScheduler", "StochasticWeightAveraging", "WeightAveraging"}
"""Callbacks of automatic optimization; not every version of Lightning has each."""


class Resumable(pl.Callback):
    """Lets a run be interrupted by SIGTERM (exit code 143) or Ctrl-C (130), and resumed.

    An iteration is finished first, and a checkpoint is written from which the run goes on bit for bit. A measurement is
    not finished: the ones before the first iteration and after the last stop at once, and so does one along the run,
    which is made when the run goes on. Several ranks stop together, after an iteration. A second Ctrl-C ends the
    process at once.

    Args:
        settings: The run's settings, kept in every checkpoint (``settings.settings``).
        length: The run's length, kept in a checkpoint where the run has stopped by itself (``settings.length``).
    """

    def __init__(self, settings: dict[str, str], length: str) -> None:
        self.settings, self.length = settings, length
        self._asked = 0
        self._patient = self._iterated = False
        self._listening = ExitStack()
        self._folder, self._watches = Path(), False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse callbacks that take the optimizers' steps for Lightning's.

        Raises:
            UserError: A callback averages weights or accumulates gradients.
        """
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if _AUTOMATIC.intersection(kind.__name__ for kind in type(callback).__mro__):
                raise UserError(
                    f"trainer.callbacks: {type(callback).__name__} needs Lightning's own steps, and methods here step "
                    "their optimizers themselves: remove it (for less memory set model.micro_batch_size)."
                )

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Add the settings, whether the run has stopped by itself, and why."""
        checkpoint[SETTINGS] = self.settings
        if trainer.should_stop:
            checkpoint |= {ENDED: self.length, WHY: pl_module.run.why}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remove the checkpoints that a killed process left beyond ``save_top_k``."""
        if trainer.ckpt_path:
            _tidy(trainer, Path(trainer.ckpt_path))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Handle signals in place of Lightning's handler, which exits without a checkpoint and lets ranks wait."""
        self._asked, self._patient, self._iterated = 0, False, False
        self._listening.enter_context(listening(self._note))
        path = _path(trainer)
        self._folder = Path() if path is None else path.parent.parent
        self._watches = path is not None and trainer.is_global_zero and self._folder.is_dir()

    def on_train_batch_start(self, trainer: pl.Trainer, *_: object) -> None:
        """Finish the iteration first if a signal comes from here on."""
        self._patient, self._iterated = True, False
        _tidy(trainer, _path(trainer))

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: object) -> None:
        """Write a checkpoint and leave if any rank was asked to.

        Raises:
            FileNotFoundError: The run's folder is gone, which a checkpoint would make anew without the rest.
            Interrupted: The checkpoint is written.
        """
        if pl_module.run.ranks.total(self._watches and not self._folder.is_dir()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._folder))
        self._iterated = True
        self._patient = pl_module.run.ranks.size > 1  # who leaves a measurement of all ranks lets the others wait
        self._leave_if_asked(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """End at once on a signal from here on: what is left can be made again from the last checkpoint."""
        _tidy(trainer, _path(trainer))
        self._leave_if_asked(trainer, pl_module)
        self._patient = self._iterated = False

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Write a checkpoint where a measurement along the run was interrupted."""
        self._listening.close()
        if isinstance(exception, Interrupted) and exception.then is None and self._iterated:
            exception.then = self._save(trainer)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Give the signals back."""
        self._listening.close()

    def _leave_if_asked(self, trainer: pl.Trainer, pl_module: Any) -> None:
        ranks = pl_module.run.ranks
        asked = ranks.total({0: 0, signal.SIGINT: 1, signal.SIGTERM: ranks.size + 1}[self._asked])
        if asked:
            signum = signal.SIGTERM if asked > ranks.size else signal.SIGINT
            raise Interrupted(signum, self._save(trainer))

    def _save(self, trainer: pl.Trainer) -> str:
        """Write a checkpoint; returns how to go on from it."""
        path = _path(trainer)
        if path is None:
            return f" after iteration {trainer.global_step}; there is no checkpoint callback"
        trainer.save_checkpoint(path, weights_only=False)
        _tidy(trainer, path)
        return f" after iteration {trainer.global_step}; '{path}' holds it all: go on with --ckpt_path last"

    def _note(self, signum: int, *_: object) -> None:
        if self._asked:
            if signum == signal.SIGINT:
                kill(signum)
            return
        self._asked = signum
        if not self._patient:
            end(signum)


class Ended(pl.Callback):
    """Lets training begin and end without an iteration, so that callbacks measure and export the model.

    Lightning calls neither ``on_train_start`` nor ``on_train_end`` of a run that starts at ``max_steps``.
    """

    why = ""

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Read why the run had stopped."""
        self.why = checkpoint.get(WHY, "")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Lift the limit, which Lightning checks before anything else; a timer that is over must not skip the run."""
        self._exchange_limits(trainer, -1, sys.maxsize)

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Restore the limit, and stop."""
        self._exchange_limits(trainer, *self._kept)
        pl_module.run.stop(self.why)
        rank_zero_info(f"All {trainer.global_step} iterations are done: evaluation and export are what is left.")

    def _exchange_limits(self, trainer: pl.Trainer, most: int, least: int | None) -> None:
        loop = trainer.fit_loop.epoch_loop
        self._kept = loop.max_steps, loop.min_steps
        loop.max_steps, loop.min_steps = most, least


def _path(trainer: pl.Trainer) -> Path | None:
    """Where the checkpoint of the present iteration is or would be; ``None``: nothing keeps checkpoints."""
    keeper = _keeper(trainer)
    return None if keeper is None else Path(keeper.dirpath or ".") / f"step={trainer.global_step}.ckpt"


def _tidy(trainer: pl.Trainer, newest: Path | None) -> None:
    """Remove older checkpoints than the last ``save_top_k``, once ``newest``, the last one, is there.

    Lightning's callback removes neither the checkpoint that a run went on from, nor what it does not know: that of an
    interruption, and what it had no time to remove. Only what is named as ours is removed, and only where the last ones
    are kept, not the best by some measure.
    """
    keeper = _keeper(trainer)
    if keeper is None or newest is None or not trainer.is_global_zero or len(trainer.checkpoint_callbacks) > 1:
        return
    if keeper.save_top_k < 1 or keeper.monitor not in (None, "step") or not newest.exists():
        return
    step = _step(newest)
    if step is not None and newest.parent.resolve() == Path(keeper.dirpath or ".").resolve():
        found = {path: _step(path) for path in newest.parent.glob("*.ckpt")}
        until = {path: n for path, n in found.items() if n is not None and n <= step}
        for path in sorted(until, key=lambda path: until[path])[: -keeper.save_top_k]:
            trainer.strategy.remove_checkpoint(path)


def _step(path: Path) -> int | None:
    """The iteration that our name of a checkpoint has; ``None``: it is named otherwise."""
    named = re.fullmatch(r"step=(\d+)\.ckpt", path.name)
    return None if named is None else int(named[1])


def _keeper(trainer: pl.Trainer) -> ModelCheckpoint | None:
    return next((c for c in trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)), None)
