"""A run of Lightning's trainer without a word but warnings, and its result."""

import shutil
import signal
import tempfile
import weakref
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.support.errors import UserError, reason
from ofmu_pl.training.export import model_facts, write_model
from ofmu_pl.training.interrupts import Interrupted, listening
from ofmu_pl.training.noise import SILENT, quiet
from ofmu_pl.training.progress import IterationProgressBar
from ofmu_pl.unlearning.result import Unlearned


def run(
    model: nn.Module,
    module: UnlearningModule,
    data: PairedDataModule,
    evaluation: Evaluation,
    *,
    steps: int,
    seed: int,
    progress: bool,
    accelerator: str,
) -> Unlearned:
    """Train for so many outer iterations, measure before and after, and keep what both say of the model.

    Raises:
        UserError: There is no such device.
        KeyboardInterrupt: The run was interrupted.
    """
    home = Path(tempfile.mkdtemp(prefix="ofmu_pl-"))
    bar = [IterationProgressBar()] if progress else []
    try:
        with quiet(), torch.random.fork_rng(range(torch.cuda.device_count())), listening():
            torch.manual_seed(seed)
            try:
                trainer = pl.Trainer(
                    accelerator=accelerator,
                    devices=1,
                    max_steps=steps,
                    callbacks=[evaluation, *bar],
                    default_root_dir=home,
                    enable_progress_bar=progress,
                    **SILENT,
                )
            except (ValueError, MisconfigurationException) as error:
                why = f"accelerator={accelerator!r} cannot be had here ({reason(error)})"
                raise UserError(f"{why}: give 'auto'.") from error
            trainer.fit(module, datamodule=data)
    except BaseException as error:
        shutil.rmtree(home, ignore_errors=True)
        if isinstance(error, Interrupted) and error.signum == signal.SIGINT:  # a notebook goes on, a program may
            raise KeyboardInterrupt from None
        raise
    facts = model_facts(trainer, module)
    data.trainer = None  # which holds optimizers
    write = partial(write_model, network=module.network, recipe=module.recipe, datamodule=data, facts=facts)
    ending, name = evaluation.ending, type(module).__name__.lower()
    assert ending is not None  # it ends each run
    measured = dict(ending.columns)
    before, retrained = measured.pop("before", {}), measured.pop("retrained", {})
    (after,) = measured.values()
    result = Unlearned(model, after, before, retrained, ending.remark, home, ending, name, write, evaluation.told)
    weakref.finalize(result, shutil.rmtree, home, ignore_errors=True)
    return result
