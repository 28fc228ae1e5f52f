"""Who takes the ascent steps of OFMU's lower level: nobody (plain steps), an Adam, the outer Adam, or Polyak's rule."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Literal

import torch
from torch import nn
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.inner import Step
from ofmu_pl.core.polyak import Polyak
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.core.vectors import Vector, scale_
from ofmu_pl.modules.goal import Goal
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.run import Run

INNER_BETAS = (0.9, 0.99)
"""Adam's betas in the inner loop, so that its second moments settle within a run of a hundred steps."""
Stepper = Literal["sgd", "adam", "shared", "polyak"]


class Ascent:
    """The optimizer of the ascent, if it has one, and its rate.

    Args:
        kind: ``sgd``: plain steps; ``adam``: an Adam of its own; ``shared``: the outer ``SharedAdam``; ``polyak``:
            steps as long as a goal asks for.
        lr: eta_in; of ``shared`` in units of the outer rate of now, of ``polyak`` a share of the gap.
    """

    def __init__(self, kind: Stepper, lr: float) -> None:
        self.kind, self.lr = kind, lr

    def own_optimizers(self, run: Run, network: nn.Module, *, exact: bool) -> list[Optimizer]:
        """Make the optimizer that the ascent has for itself, if it has one.

        Raises:
            UserError: The outer optimizer cannot ascend, or ranks hold shards and the exact engine whole copies.
        """
        outer = run.optimizers[0]
        if self.kind == "sgd":
            return []
        if self.kind == "shared" and not isinstance(outer, SharedAdam):
            raise UserError(
                f"With inner_optimizer=shared the ascent steps by the outer optimizer, and {type(outer).__name__} has "
                "no second momentum for it: set --model.optimizer SharedAdam."
            )
        if exact and run.ranks.sharded:
            raise UserError(
                "The exact engine ascends on whole copies of FSDP2's shards, for which no Adam keeps state: set "
                "--model.engine finite_difference, --model.inner_optimizer sgd, or --trainer.strategy ddp."
            )
        if self.kind == "shared":
            return []
        if self.kind == "polyak":
            return [Polyak(trainable(network))]
        return [torch.optim.Adam(trainable(network), lr=self.lr, betas=INNER_BETAS)]

    def optimizers(self, run: Run) -> list[Optimizer]:
        """The optimizer that takes the ascent steps, if they are not plain."""
        outer, *own = run.optimizers
        return [outer] if self.kind == "shared" else own

    def step(self, run: Run, parameters: Vector, goal: Goal | None, batches: Sequence[Batch]) -> Step | None:
        """What takes the ascent steps of an iteration.

        Args:
            run: The run with its optimizers.
            parameters: What is moved.
            goal: Where forget rows are to end; ``polyak`` asks for it.
            batches: The iteration's forget batches.
        """
        if self.kind == "sgd":
            return None
        (optimizer,) = self.optimizers(run)
        if isinstance(optimizer, Polyak) and goal is not None:
            return partial(_by_polyak, optimizer, parameters, goal, batches, self.lr)
        rate = self.lr * (optimizer.param_groups[0]["lr"] if self.kind == "shared" else 1.0)
        return partial(_by_optimizer, optimizer, parameters, rate)


def _by_polyak(
    optimizer: Polyak,
    parameters: Vector,
    goal: Goal,
    batches: Sequence[Batch],
    share: float,
    t: int,
    loss_f: float,
    direction: Vector,
) -> None:
    gap = goal.gap(batches[:-1], len(batches) - 1, t, loss_f)
    _by_optimizer(optimizer, parameters, share, t, loss_f, direction, gap=gap)


def _by_optimizer(
    optimizer: Optimizer, parameters: Vector, lr: float, t: int, loss_f: float, direction: Vector, **given: float
) -> None:
    """Ascend along ``direction``, which is overwritten, by one step of an optimizer, which descends, so ``given``."""
    scale_(direction, -1.0)
    for p, d in zip(parameters, direction, strict=True):
        p.grad = d
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = lr
    with optimizer.ascending() if isinstance(optimizer, SharedAdam) else nullcontext():
        optimizer.step(**given)  # type: ignore[call-overload]  # a Polyak's takes the gap
    optimizer.zero_grad()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
