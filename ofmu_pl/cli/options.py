"""Options of Lightning's Trainer that have no meaning here, or cannot work: refused before any work."""

import re
from collections.abc import Callable

import torch
from jsonargparse import Namespace
from lightning.pytorch.strategies import ModelParallelStrategy

from ofmu_pl.support.errors import UserError
from ofmu_pl.training.parallel import NO_FLOAT64

NO_LIMIT = "does nothing here, where the evaluation measures: set evaluation.every_n_steps and evaluation.rows instead"
MEANINGLESS: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    (
        "accumulate_grad_batches",
        lambda x: x != 1,
        "does nothing, since an iteration is one optimizer step: set a larger data.batch_size, and "
        "model.micro_batch_size where memory is short",
    ),
    ("logger", lambda x: x is False, "leaves the results without a folder: leave it out, and say by logs where it is"),
    ("gradient_clip_val", lambda x: x is not None, "does nothing here: set model.gradient_clip, a norm, instead"),
    ("overfit_batches", bool, "can repeat no batches here: leave it out, and choose data of few rows"),
    (
        "limit_train_batches",
        lambda x: x == 0,
        "leaves a run that does nothing: set trainer.max_steps 0, which measures and exports the model as it is",
    ),
    ("limit_val_batches", lambda x: x is not None, NO_LIMIT),
    ("limit_test_batches", lambda x: x is not None, NO_LIMIT),
    ("val_check_interval", lambda x: x is not None, NO_LIMIT),
)
"""Options of Lightning's Trainer, which of their values have no meaning here, and why."""


def check_trainer(trainer: Namespace) -> None:
    """Refuse options of Lightning's that have no meaning here, or cannot work."""
    for option, is_refused, why in MEANINGLESS:
        if is_refused(trainer[option]):
            raise UserError(f"trainer.{option} {trainer[option]} {why}.")


def check_schedule(config: Namespace) -> None:
    """Refuse a schedule that is over before the run, unless something may end the run before ``max_steps``."""
    model, steps = config.get("model.init_args") or {}, config["trainer"]["max_steps"]
    last = model.get("scheduler.init_args.total_steps")
    ends = config["trainer"]["callbacks"] or model.get("stop_at") or model.get("stationarity_tol") is not None
    if last and last < steps and model["scheduler.class_path"].endswith(".OneCycleLR") and not ends:
        raise UserError(
            f"The schedule is over after {last} steps, and the run has {steps} iterations: set "
            f"model.scheduler.total_steps {steps}, or trainer.max_steps {last}."
        )


def check_keepers(config: Namespace) -> None:
    """Refuse options of what writes checkpoints by which no run could go on, or ``purge`` would leave them."""
    callbacks = [callback.get("init_args") or {} for callback in config["trainer"]["callbacks"] or []]
    for keeper in [config["checkpoint"], *(given for given in callbacks if "dirpath" in given)]:
        name = keeper.get("filename") or ""
        if not keeper.get("auto_insert_metric_name", True):
            name = re.sub(r"\{[^{}]*\}", "", name)  # a '/' in a metric's name stays out of the file's
        if keeper["dirpath"] is not None or "/" in name:
            option = "filename" if keeper["dirpath"] is None else "dirpath"
            raise UserError(
                f"checkpoint.{option} takes checkpoints to where neither --ckpt_path last nor purge looks for them: "
                "leave it out, and say with logs where runs and their checkpoints go."
            )
        if keeper.get("save_weights_only"):
            raise UserError(
                "checkpoint.save_weights_only leaves checkpoints that no run can go on from: leave it out; weights "
                "alone are in the exported model (export.folder)."
            )


def check_devices(trainer: Namespace) -> None:
    """Refuse devices that are not here, before any process is started."""
    if trainer["accelerator"] in ("gpu", "cuda") and not torch.cuda.is_available():
        raise UserError("There is no GPU that torch can use here: set trainer.accelerator cpu.")
    if isinstance(trainer["strategy"], ModelParallelStrategy) and "64" in str(trainer["precision"]):
        raise UserError(NO_FLOAT64)
