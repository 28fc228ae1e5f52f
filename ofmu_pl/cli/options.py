"""Options of Lightning's Trainer that have no meaning here, or cannot work: refused before any work."""

from __future__ import annotations

import re
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

    if trainer["overfit_batches"]:
        raise UserError(
            "--trainer.overfit_batches can repeat no batches here, where each follows from the seed and its number: "
            "leave it out, and choose data of few rows."
        )
    if trainer["limit_train_batches"] == 0:
        raise UserError(
            "--trainer.limit_train_batches 0 leaves a run that does nothing: set --trainer.max_steps 0, with which it "
            "measures and exports the model as it is."
        )
    for option in ("limit_val_batches", "limit_test_batches", "val_check_interval"):
        if trainer[option] is not None:
            raise UserError(
                f"--trainer.{option} does nothing here, where the evaluation measures: set --evaluation.every_n_steps "
                "for when, and for text --evaluation.rows for how much."
            )


def check_schedule(config: Any) -> None:
    """Refuse a schedule that is over before the run, unless something may end the run before ``max_steps``.

    Args:
        config: The command's configuration.

    Raises:
        UserError: torch's OneCycleLR, which takes no further step, has fewer of them than the run.
    """
    model, steps = config.get("model.init_args") or {}, config["trainer"]["max_steps"]
    last = model.get("scheduler.init_args.total_steps")
    ends = config["trainer"]["callbacks"] or model.get("stop_at") or model.get("stationarity_tol") is not None
    if last and last < steps and model["scheduler.class_path"].endswith(".OneCycleLR") and not ends:
        raise UserError(
            f"The schedule is over after {last} steps, and the run has {steps} iterations: set "
            f"--model.scheduler.total_steps {steps}, or --trainer.max_steps {last}."
        )


def check_keepers(config: Any) -> None:
    """Refuse options of what writes checkpoints by which no run could go on, or ``purge`` would leave them.

    Args:
        config: The command's configuration; callbacks of the trainer's that write checkpoints are among it.

    Raises:
        UserError: The first such option, and what takes its place.
    """
    callbacks = [callback.get("init_args") or {} for callback in config["trainer"]["callbacks"] or []]
    for keeper in [config["checkpoint"], *(given for given in callbacks if "dirpath" in given)]:
        _check_keeper(keeper)


def _check_keeper(checkpoint: Any) -> None:
    if checkpoint["dirpath"] is not None:
        raise UserError(
            "--checkpoint.dirpath takes checkpoints to where neither --ckpt_path last nor purge looks for them: leave "
            "it out, and say with --logs where runs and their checkpoints go."
        )
    name = checkpoint.get("filename") or ""
    if not checkpoint.get("auto_insert_metric_name", True):
        name = re.sub(r"\{[^{}]*\}", "", name)  # a '/' in a metric's name stays out of the file's
    if "/" in name:
        raise UserError(
            f"--checkpoint.filename '{name}' has a '/', which takes checkpoints to where --ckpt_path last does not "
            "look for them: give a name without one."
        )
    if checkpoint.get("save_weights_only"):
        raise UserError(
            "--checkpoint.save_weights_only leaves checkpoints that no run can go on from: leave it out; weights alone "
            "are in the exported model (--export.folder)."
        )


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
