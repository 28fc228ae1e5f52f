"""The outer step and its guards: numbers that no model can have reach neither the weights nor a checkpoint."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, clip_, norm, zeros_like
from ofmu_pl.support.errors import DivergedError, UserError
from ofmu_pl.training.checkpoints import most_advanced
from ofmu_pl.training.parallel import scatter_
from ofmu_pl.training.run import Run


class Judge(Protocol):
    """The part of a network's recipe that descent needs."""

    def uniform_loss(self, module: nn.Module) -> float:
        """Loss of a uniform guess, which a retain loss must stay near."""
        ...


class Descending(Protocol):
    """The part of a method that descent needs.

    Attributes:
        run: The run with its optimizers.
        network: The network whose trainable parameters move.
        gradient_clip: Largest norm of the gradient; ``None``: as it is.
    """

    run: Run
    network: nn.Module | None
    gradient_clip: float | None

    @property
    def recipe(self) -> Judge:
        """The network's recipe."""
        ...

    @property
    def trained(self) -> nn.Module:
        """The network that iterations differentiate: ``network``, or a whole copy of its shards."""
        ...

    @property
    def remedy(self) -> str:
        """What to try after a divergence."""
        ...

    def weights_changed(self) -> None:
        """Note that parameters were written from outside."""


def built(what: str, make: Callable[[Any], Any], over: Any) -> Any:
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
        raise UserError(
            f"{type(made).__name__} steps by `{needed[0]}`, which nothing gives it here: choose another `{what}`."
        )
    return made


def _said(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def check_optimizer(optimizer: Optimizer, *, sharded: bool, device: torch.device) -> None:
    """Refuse, before the run, an optimizer that cannot step there.

    Raises:
        UserError: It is one of bitsandbytes' on shards, or a paged one on a CPU, where nothing is paged.
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


def check_direction(method: Descending, gradient: Vector, scalars: dict[str, float]) -> None:
    """Require, before the step, finite losses, a finite direction, and a retain loss that a model can still have.

    Args:
        method: The method whose direction it is.
        gradient: The direction, clipped in place to the method's ``gradient_clip``.
        scalars: Scalars of the iteration; the gradient's norm before clipping is added.

    Raises:
        DivergedError: A number is not as required.
    """
    for name, value in scalars.items():
        if not math.isfinite(value):
            raise diverged(method, f"{name} is {value}")
    hopeless = 3 * method.recipe.uniform_loss(method.trained)
    if scalars.get("L_r", 0.0) > hopeless:
        raise diverged(method, f"L_r is {scalars['L_r']:.4g}, three times worse than a uniform guess")
    scalars["gradient_norm"] = clip_(gradient, method.gradient_clip)
    if not math.isfinite(scalars["gradient_norm"]):
        raise diverged(method, "the gradient is not finite")


def descend(method: Descending, gradient: Vector) -> None:
    """Take one step of the run's first optimizer and of its scheduler.

    Args:
        method: The method whose weights move.
        gradient: The direction to descend along, one tensor per trainable parameter of ``trained``.

    Raises:
        DivergedError: The norm of the weights more than doubled; the step is then not counted.
        UserError: The scheduler is at its end (OneCycleLR after ``total_steps``).
    """
    assert method.network is not None, "configure_model has not run"
    run, parameters = method.run, trainable(method.network)
    if method.trained is not method.network:  # the iteration moved whole copies
        shards = zeros_like(parameters)
        scatter_(shards, gradient)
        with torch.no_grad():
            scatter_(parameters, trainable(method.trained))
        gradient = shards
    for p, g in zip(parameters, gradient, strict=True):
        p.grad = g
    before = norm(parameters)

    def check(*_: Any) -> None:
        after = norm(parameters)
        if not after <= 2 * before:  # also true for NaN
            raise diverged(method, f"the norm of the weights went from {before:.4g} to {after:.4g} in one step")

    method.weights_changed()
    with run.optimizers[0].register_step_post_hook(check):  # before the step is counted
        run.advance()
    run.optimizers[0].zero_grad()
    if run.scheduler is not None:
        try:
            run.scheduler.step()
        except ValueError as error:
            raise UserError(
                f"{type(run.scheduler).__name__} cannot go on after iteration {run.step} ({_said(error)}): mend "
                "`scheduler`."
            ) from error


def diverged(method: Descending, what: str) -> DivergedError:
    """The error that names the present iteration and the last checkpoint before the trouble.

    A checkpoint of the present weights is not trusted, as the trouble was seen with them.
    """
    k, folders = method.run.step, method.run.checkpoint_folders
    good = most_advanced((path for folder in folders for path in folder.glob("*.ckpt")), below=k - 1)
    where = f"the last good checkpoint is '{good}'" if good else "there is no good checkpoint yet"
    return DivergedError(f"{type(method).__name__} diverged in outer iteration {k} ({what}); {where}; {method.remedy}.")
