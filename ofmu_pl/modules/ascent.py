"""Who takes the ascent steps of OFMU's lower level: nobody (plain steps), an Adam, the outer Adam, or Polyak's rule."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Literal

import torch
from torch import nn
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.inner import Step
from ofmu_pl.core.polyak import Polyak
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.core.vectors import Vector, scale_, set_gradients
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

    def own_optimizers(self, outer: Optimizer, network: nn.Module, *, whole_copies: bool) -> list[Optimizer]:
        """Make the optimizer that the ascent has for itself, if any; refuse an outer one that cannot ascend as told."""
        if self.kind == "sgd":
            return []
        if self.kind == "shared" and not isinstance(outer, SharedAdam):
            raise UserError(
                f"With model.inner_optimizer shared ascents go by the outer optimizer, and {type(outer).__name__} has "
                "no second momentum for them: set model.optimizer SharedAdam."
            )
        if whole_copies:
            raise UserError(
                "The exact engine ascends on whole copies of FSDP2's shards, for which no Adam keeps state: set "
                "model.engine finite_difference, model.inner_optimizer sgd, or trainer.strategy ddp."
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
        """What takes the ascent steps of an iteration on ``batches`` of forget rows; ``None``: they are plain.

        ``polyak`` asks ``goal`` how far the path is ahead.
        """
        if self.kind == "sgd":
            return None
        (optimizer,) = self.optimizers(run)
        rate = self.lr * (optimizer.param_groups[0]["lr"] if self.kind == "shared" else 1.0)

        def ascend(t: int, loss_f: float, direction: Vector) -> None:
            given = {}
            if isinstance(optimizer, Polyak) and goal is not None:
                given["gap"] = goal.gap(batches[t], len(batches) - 1, t, loss_f)
            with optimizer.ascending() if isinstance(optimizer, SharedAdam) else nullcontext():
                _step_along(optimizer, parameters, rate, direction, given)

        return ascend


def _step_along(
    optimizer: Optimizer, parameters: Vector, lr: float, direction: Vector, given: Mapping[str, float]
) -> None:
    """Go along ``direction``, which is overwritten, by one step of an optimizer, which descends."""
    scale_(direction, -1.0)
    set_gradients(parameters, direction)
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step(**given)  # type: ignore[call-overload]  # a Polyak's takes the gap
    optimizer.zero_grad()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
