"""Options of Lightning's Trainer that have no meaning here, or cannot work: refused before any work."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy

from ofmu_pl.support.errors import UserError
from ofmu_pl.training.parallel import no_float64


def check_trainer(trainer: Any) -> None:
    """Refuse options of Lightning's that have no meaning here, or cannot work.

    Args:
        trainer: Its configuration.

    Raises:
        UserError: The first such option, and what takes its place.
    """
    if trainer["accumulate_grad_batches"] != 1:
        raise UserError(
            "An iteration is one optimizer step already, so --trainer.accumulate_grad_batches does nothing: set a "
            "larger --data.batch_size, and --model.micro_batch_size where memory is short."
        )
    if trainer["logger"] is False:
        raise UserError(
            "--trainer.logger false leaves the run without a folder for its results: leave it out, and say with --logs "
            "where results go."
        )
    for option in ("gradient_clip_val", "gradient_clip_algorithm"):
        if trainer[option] is not None:
            raise UserError(f"--trainer.{option} does nothing here: set --model.gradient_clip, a norm, instead.")


def check_devices(trainer: Any) -> None:
    """Refuse devices that are not here, before any process is started.

    Args:
        trainer: Its configuration.

    Raises:
        UserError: A GPU is asked for, and there is none; or FSDP2 would have to shard in float64.
    """
    if trainer["accelerator"] in ("gpu", "cuda") and not torch.cuda.is_available():
        raise UserError("There is no GPU that torch can use here: set --trainer.accelerator cpu.")
    if isinstance(trainer["strategy"], ModelParallelStrategy) and "64" in str(trainer["precision"]):
        raise no_float64()
