"""The outer step and its guards: numbers that no model can have never reach the weights, nor a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, clip_, norm, zeros_like
from ofmu_pl.support.errors import DivergedError, UserError
from ofmu_pl.training.checkpoints import most_advanced
from ofmu_pl.training.parallel import scatter_


def built(what: str, make: Callable[[Any], Any], over: Any) -> Any:
    """An optimizer over parameters, or a scheduler over an optimizer.

    Raises:
        UserError: It refuses its options.
    """
    try:
        return make(over)
    except (ValueError, TypeError, RuntimeError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise UserError(f"The {what} refuses its options ({why}): mend --model.{what}.") from error


def check_optimizer(optimizer: Optimizer, *, sharded: bool, device: torch.device) -> None:
    """Before the run.

    Raises:
        UserError: An optimizer of bitsandbytes on shards, or a paged one on a CPU, where nothing is paged.
    """
    name = type(optimizer).__name__
    if sharded and type(optimizer).__module__.startswith("bitsandbytes"):
        raise UserError(
            f"{name} cannot step on FSDP2's shards (its kernels take whole tensors): take torch.optim.AdamW, or set "
            "--trainer.strategy ddp."
        )
    if getattr(optimizer, "is_paged", False) and device.type == "cpu":
        raise UserError(
            f"{name} pages its state between a GPU's memory and the host's, and this run is on a CPU: take "
            f"bitsandbytes.optim.{name.removeprefix('Paged')}, or set --trainer.accelerator gpu."
        )


def check_direction(module: Any, gradient: Vector, scalars: dict[str, float]) -> None:
    """Before the step: finite losses and direction, and a retain loss that a model can still have.

    Args:
        module: The method.
        gradient: Clipped in place to its ``gradient_clip``.
        scalars: Of the iteration; the gradient's norm before clipping is added.

    Raises:
        DivergedError: Something is not.
    """
    for name, value in scalars.items():
        if not math.isfinite(value):
            raise module.diverged(f"{name} is {value}")
    hopeless = 3 * module.recipe.uniform_loss(module.trained)
    if scalars.get("L_r", 0.0) > hopeless:
        raise module.diverged(f"L_r is {scalars['L_r']:.4g}, three times worse than a uniform guess")
    scalars["gradient_norm"] = clip_(gradient, module.gradient_clip)
    if not math.isfinite(scalars["gradient_norm"]):
        raise module.diverged("the gradient is not finite")


def descend(module: Any, gradient: Vector) -> None:
    """One counted step of the optimizer and of its scheduler.

    Raises:
        DivergedError: The norm of the weights more than doubled; the step is then not counted.
    """
    optimizer = module.every_optimizer[0]
    parameters = trainable(module.network)
    if module.ranks.sharded and module.exact:  # the iteration moved whole copies
        shards = zeros_like(parameters)
        scatter_(shards, gradient)
        with torch.no_grad():
            scatter_(parameters, trainable(module.trained))
        gradient = shards
    for p, g in zip(parameters, gradient, strict=True):
        p.grad = g
    before = norm(parameters)

    def check(*_: Any) -> None:
        after = norm(parameters)
        if not after <= 2 * before:  # also true for NaN
            raise module.diverged(f"the norm of the weights went from {before:.4g} to {after:.4g} in one step")

    module.weights_changed()
    counted = module.iteration > module.trainer.global_step  # not where an iteration is made again
    with module.recovery.step(optimizer.optimizer, check):
        (optimizer if counted else optimizer.optimizer).step()
    optimizer.zero_grad()
    scheduler: Any = module.lr_schedulers()
    if scheduler is not None:
        scheduler.step()


def diverged(module: Any, k: int, what: str) -> DivergedError:
    """The error that names iteration ``k`` and the last checkpoint before the trouble.

    A checkpoint of the present weights is not trusted: they are what the trouble was seen with.
    """
    trainer = module.trainer
    folders = {Path(trainer.ckpt_path).parent} if trainer.ckpt_path else set()
    folders |= {Path(c.dirpath) for c in trainer.checkpoint_callbacks if getattr(c, "dirpath", None)}
    good = most_advanced((path for folder in folders for path in folder.glob("*.ckpt")), below=k - 1)
    where = f"the last good checkpoint is '{good}'" if good else "there is no good checkpoint yet"
    return DivergedError(f"{type(module).__name__} diverged in outer iteration {k} ({what}); {where}; {module.remedy}.")
