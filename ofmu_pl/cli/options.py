"""Options of Lightning's Trainer that have no meaning here, or cannot work: refused before any work."""

import re
from collections.abc import Callable

import torch
from jsonargparse import Namespace
from lightning.pytorch.strategies import ModelParallelStrategy

from ofmu_pl.support.errors import UserError
from ofmu_pl.training.parallel import NO_FLOAT64

SENDS = ("log_model", "log_model_checkpoints")  # options of W&B's, MLflow's and Neptune's loggers
NO_LIMIT = "does nothing here, where the evaluation measures: set evaluation.every_n_steps and evaluation.rows instead"
MEANINGLESS: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    (
        "accumulate_grad_batches",
        lambda x: x != 1,
        "does nothing, since an iteration is one optimizer step: set a larger data.batch_size, and "
        "model.micro_batch_size where memory is short",
    ),
    ("logger", lambda x: x is False, "does nothing here: leave it out, and say by logs where the run's folder is"),
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


_FILLED = re.compile(r"\{([\w/.-]+)(:0?\d{0,2}(\.\d{1,2})?[defg]?)?\}")


def check_writers(config: Namespace) -> None:
    """Refuse files that would lie outside of the run's folder, and checkpoints by which no run could go on."""
    trainer = config["trainer"]
    callbacks = trainer["callbacks"] or []
    several = callbacks if isinstance(callbacks, list) else [callbacks]
    parts = [("callbacks", part) for part in several] + [("profiler", trainer["profiler"])]
    given = [("checkpoint", config["checkpoint"])]
    given += [(f"trainer.{name}", part.get("init_args") or {}) for name, part in parts if isinstance(part, Namespace)]
    for part in several:
        name = str(part.get("class_path")).rpartition(".")[2]
        if name in ("LearningRateFinder", "BatchSizeFinder"):
            raise UserError(
                f"trainer.callbacks {name} does nothing here, where methods step by themselves: leave it out."
            )
    for option, writer in given:
        if writer.get("exclude_batches_path") is not None:
            raise UserError(f"{option}.exclude_batches_path takes a file out of the run's folder: leave it out.")
        if "dirpath" not in writer:
            continue
        # A '/' in a metric's name is left out of the file's name, unless the metric's name is put into it.
        inserted = r"\1" if writer.get("auto_insert_metric_name", True) else ""
        name = _FILLED.sub(inserted, writer.get("filename") or "")
        if writer["dirpath"] is not None or set("/{}") & set(name):
            raise UserError(
                f"{option}.{'filename' if writer['dirpath'] is None else 'dirpath'} takes files to where neither "
                "--ckpt_path last nor purge looks for them: leave it out, and say with logs where runs and their files "
                "go."
            )
        if writer.get("save_weights_only"):
            raise UserError(
                "checkpoint.save_weights_only leaves checkpoints that no run can go on from: leave it out; weights "
                "alone are in the exported model (export.folder)."
            )


def check_loggers(given: object) -> None:
    """Refuse loggers that send checkpoints away, which hold scores of rows and perhaps what was said of them."""
    for logger in given if isinstance(given, list) else [given]:
        sends = isinstance(logger, Namespace) and (logger.get(f"init_args.{name}") for name in SENDS)
        if any(sends or ()):
            raise UserError(f"A logger that sends checkpoints tells of rows: set its {' or '.join(SENDS)} false.")


def check_devices(trainer: Namespace) -> None:
    """Refuse devices that are not here, before any process is started."""
    if trainer["accelerator"] in ("gpu", "cuda") and not torch.cuda.is_available():
        raise UserError("There is no GPU that torch can use here: set trainer.accelerator cpu.")
    if isinstance(trainer["strategy"], ModelParallelStrategy) and "64" in str(trainer["precision"]):
        raise UserError(NO_FLOAT64)
