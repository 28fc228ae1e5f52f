"""The outer step and its guards: numbers that no model can have reach neither the weights nor a checkpoint."""

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, norm, set_gradients, zeros_like
from ofmu_pl.support.errors import DivergedError, UserError
from ofmu_pl.support.extras import extra
from ofmu_pl.training.checkpoints import most_advanced
from ofmu_pl.training.parallel import scatter_
from ofmu_pl.training.run import Run


class Runaway(Exception):
    """Numbers that no model can have; the text says which."""


Over = TypeVar("Over")
Made = TypeVar("Made", Optimizer, LRScheduler)


def built(what: str, make: Callable[[Over], Made], over: Over) -> Made:
    """Make an optimizer over parameters, or a scheduler over an optimizer.

    Raises:
        UserError: The class refuses its options, or its steps need something that no method has for them (LBFGS a
            closure, ReduceLROnPlateau a metric).
    """
    try:
        made = make(over)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"The {what} refuses its options ({_said(error)}): mend `{what}`.") from error
    takes = inspect.signature(made.step).parameters.values()
    needed = [p.name for p in takes if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    if needed:
        raise UserError(f"{type(made).__name__} steps by `{needed[0]}`, which nothing gives it: take another `{what}`.")
    return made


def _said(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def check_optimizer(optimizer: Optimizer, *, sharded: bool, device: torch.device) -> None:
    """Refuse, before the run, an optimizer that cannot step there.

    Raises:
        UserError: It is one of bitsandbytes' on shards, or a paged one on a CPU, where nothing is paged.
    """
    name = type(optimizer).__name__
    if sharded and _is_bitsandbytes(optimizer):
        raise UserError(f"{name} takes no shards of FSDP2's: take torch.optim.AdamW, or --trainer.strategy ddp.")
    if getattr(optimizer, "is_paged", False) and device.type == "cpu":
        raise UserError(
            f"{name} pages its state between a GPU's memory and the host's, and this run is on a CPU: take "
            f"bitsandbytes.optim.{name.removeprefix('Paged')}, or set --trainer.accelerator gpu."
        )


def moments_of_embeddings(optimizer: Optimizer, network: nn.Module) -> None:
    """Have an 8-bit optimizer of bitsandbytes keep embeddings' moments in 32 bits; others keep them as they do.

    Most rows of an embedding have no gradient in a step, which 8 bits keep badly. Its authors (Dettmers et al., 2022)
    and transformers' Trainer do the same.
    """
    if _is_bitsandbytes(optimizer):
        manager = extra("bitsandbytes.optim", type(optimizer).__name__).GlobalOptimManager.get_instance()
        embeddings = [module.weight for module in network.modules() if isinstance(module, nn.Embedding)]
        manager.override_config(embeddings, "optim_bits", 32)


def _is_bitsandbytes(optimizer: Optimizer) -> bool:
    return type(optimizer).__module__.startswith("bitsandbytes")


def check_direction(gradient: Vector, scalars: dict[str, float], uniform: float) -> None:
    """Require, before the step, finite losses, a finite direction, and a retain loss that a model can still have.

    The gradient's norm is added to the iteration's scalars. A retain loss may be at most three times that of a
    ``uniform`` guess.

    Raises:
        Runaway: A number is not as required.
    """
    for name, value in scalars.items():
        if not math.isfinite(value):
            raise Runaway(f"{name} is {value}")
    if scalars.get("L_r", 0.0) > 3 * uniform:
        raise Runaway(f"L_r is {scalars['L_r']:.4g}, three times worse than a uniform guess")
    scalars["gradient_norm"] = norm(gradient)
    if not math.isfinite(scalars["gradient_norm"]):
        raise Runaway("the gradient is not finite")


def descend(run: Run, network: nn.Module, trained: nn.Module, gradient: Vector, **given: float) -> None:
    """Take one step of the run's first optimizer and of its scheduler.

    Args:
        run: The run.
        network: The network whose trainable parameters move.
        trained: The network that iterations differentiate: ``network``, or a whole copy of its shards.
        gradient: The direction to descend along, one tensor per trainable parameter of ``trained``.
        given: Arguments of the optimizer's step.

    Raises:
        Runaway: The norm of the weights more than doubled; the step is then not counted.
        UserError: The scheduler is at its end (OneCycleLR after ``total_steps``).
    """
    parameters = trainable(network)
    if trained is not network:  # the iteration moved whole copies
        shards = zeros_like(parameters)
        scatter_(shards, gradient)
        with torch.no_grad():
            scatter_(parameters, trainable(trained))
        gradient = shards
    set_gradients(parameters, gradient)
    before = norm(parameters)

    def check(*_: object) -> None:
        after = norm(parameters)
        if not after <= 2 * before:  # also true for NaN
            raise Runaway(f"the norm of the weights went from {before:.4g} to {after:.4g} in one step")

    with run.optimizers[0].register_step_post_hook(check):  # before the step is counted
        run.advance(**given)
    run.optimizers[0].zero_grad()
    if run.scheduler is not None:
        try:
            run.scheduler.step()
        except ValueError as error:
            raise UserError(
                f"{type(run.scheduler).__name__} cannot go on after iteration {run.step} ({_said(error)}): mend it."
            ) from error


def diverged(method: str, run: Run, what: str, remedy: str) -> DivergedError:
    """The error that names the present iteration and the last checkpoint before the trouble.

    A checkpoint of the present weights is not trusted, as the trouble was seen with them.
    """
    checkpoints: list[Path] = []
    for folder in run.checkpoint_folders:
        checkpoints += folder.glob("*.ckpt")
    good = most_advanced(checkpoints, below=run.step - 1)
    where = f"the last good checkpoint is '{good}'" if good else "there is no good checkpoint yet"
    return DivergedError(f"{method} diverged in outer iteration {run.step} ({what}); {where}; {remedy}.")
