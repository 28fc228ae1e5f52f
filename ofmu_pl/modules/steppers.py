"""Parts of OFMU that take the ascent steps: nobody (plain steps), an Adam, the outer Adam, or Polyak's rule."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import nn
from torch.optim import Optimizer

from ofmu_pl.core.algorithm import Step
from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.polyak import Polyak
from ofmu_pl.core.safeguards import Safeguards
from ofmu_pl.core.shared_adam import SharedAdam, metric
from ofmu_pl.core.vectors import Vector, scale_, set_gradients
from ofmu_pl.modules.lower_level import LowerLevel
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.training.run import Run

INNER_BETAS = (0.9, 0.99)
"""Adam's betas in the inner loop, so that its second moments settle within a run of a hundred steps."""
GAP_SHARE_BACK = 0.25
"""Share of a path's gap that an ascent closes where a penalty goes by its running mean: gaps there are wider than the
path's own, and whole steps harm what must stay."""


class Stepper(ABC):
    """Who takes the ascent steps, and how far they go.

    A part of your own makes an optimizer in ``own_optimizers``, which then takes the steps, at a rate of its own. The
    gradient is clipped before (``safeguards.inner_clip``).

    Args:
        lr: eta_in.
    """

    remedy: str = "lower model.stepper.lr or the optimizer's rate"
    """What to try after a divergence, where every safeguard is on."""
    outer_options: Mapping[str, Any] = MappingProxyType({})
    """Options of ``UnlearningModule``, for the outer step, that take the place of those that were given."""
    plain: bool = False
    """Whether no optimizer takes the steps."""
    keeps_mean: bool = False
    """Whether the optimizer can keep a running mean of the ascent's gradients."""
    follows_distance: bool = False
    """Whether steps are as long as the lower level's distance asks for, along its own gradient."""

    def __init__(self, lr: float) -> None:
        check_range(0, lr=lr)
        self.lr = lr

    def within(self, safeguards: Safeguards) -> Safeguards:
        """The bounds that these steps need, of those that were given."""
        return safeguards

    @abstractmethod
    def own_optimizers(self, outer: Optimizer, network: nn.Module, *, mean: bool) -> list[Optimizer]:
        """Make the optimizer that the ascent has for itself, if any; refuse an ``outer`` one that cannot serve both.

        ``mean`` says whether the method ``mean`` is asked, as by a penalty that reaches.
        """

    def optimizers(self, run: Run) -> list[Optimizer]:
        """The optimizer that takes the ascent steps; none: they are plain."""
        return run.optimizers[1:]

    def mean(self, run: Run) -> Vector:
        """The ascent's running mean in the optimizer's metric, pointing up; empty before the first step."""
        return []

    def arguments(self, lower: LowerLevel, batches: Sequence[Batch], t: int, loss_f: float) -> dict[str, float]:
        """What the optimizer's step needs at ascent ``t``, from 0, beside the gradient; L_f was ``loss_f`` before."""
        return {}

    def outer_arguments(self, scalars: dict[str, float]) -> dict[str, float]:
        """What the outer step needs beside the gradient, of what the iteration measured."""
        return {}

    def step(self, run: Run, parameters: Vector, lower: LowerLevel, batches: Sequence[Batch]) -> Step | None:
        """What takes the ascent steps of an iteration on ``batches`` of forget rows; ``None``: they are plain."""
        if self.plain:
            return None
        (optimizer,) = self.optimizers(run)

        def ascend(t: int, loss_f: float, direction: Vector) -> None:
            scale_(direction, -1.0)  # optimizers descend
            set_gradients(parameters, direction)
            optimizer.step(**self.arguments(lower, batches, t, loss_f))  # type: ignore[call-overload]
            optimizer.zero_grad()

        return ascend


class PlainSteps(Stepper):
    """Plain gradient ascent, as printed.

    Args:
        lr: eta_in (the paper is silent; 0.02 with unit steps worked on tiny Llamas).
    """

    plain = True

    def __init__(self, lr: float = 0.02) -> None:
        super().__init__(lr)

    def own_optimizers(self, outer: Optimizer, network: nn.Module, *, mean: bool) -> list[Optimizer]:
        """None."""
        return []


class AdamSteps(Stepper):
    """The steps of an Adam of the ascent's own, with two vectors as its state (the paper runs all with AdamW).

    Args:
        lr: eta_in (the paper is silent; 3e-4 worked on tiny Llamas).
    """

    keeps_mean = True

    def __init__(self, lr: float = 3e-4) -> None:
        super().__init__(lr)

    def own_optimizers(self, outer: Optimizer, network: nn.Module, *, mean: bool) -> list[Optimizer]:
        """An Adam."""
        return [torch.optim.Adam(trainable(network), lr=self.lr, betas=INNER_BETAS)]

    def mean(self, run: Run) -> Vector:
        """Minus Adam's own, which descends."""
        (adam,) = self.optimizers(run)
        (group,) = adam.param_groups
        states = [adam.state[p] for p in group["params"]]
        if not all(states):
            return []
        step = float(states[0]["step"])
        return [-s["exp_avg"] / metric(s["exp_avg_sq"], INNER_BETAS[1], step, group["eps"]) for s in states]


class SharedSteps(Stepper):
    """The steps of the outer ``SharedAdam``, in the metric of both loops and at the rate that its scheduler gives both.

    Args:
        lr_ratio: eta_in in units of the outer rate of now; 1: ascents are as long as descents.
    """

    keeps_mean = True

    def __init__(self, lr_ratio: float = 1.0) -> None:
        check_range(0, lr_ratio=lr_ratio)
        super().__init__(lr_ratio)
        self.lr_ratio = lr_ratio

    def own_optimizers(self, outer: Optimizer, network: nn.Module, *, mean: bool) -> list[Optimizer]:
        """None: the outer one has to be a ``SharedAdam``, with the second momentum that the ascent needs."""
        if not isinstance(outer, SharedAdam):
            raise UserError(
                f"With model.stepper SharedSteps ascents go by the outer optimizer, and {type(outer).__name__} has no "
                "second momentum for them: set model.optimizer SharedAdam."
            )
        return []

    def optimizers(self, run: Run) -> list[Optimizer]:
        """The outer one."""
        return run.optimizers[:1]

    def mean(self, run: Run) -> Vector:
        """That of the ascent's first momentum in the metric of both loops."""
        return cast(SharedAdam, run.optimizers[0]).ascent_mean()

    def arguments(self, lower: LowerLevel, batches: Sequence[Batch], t: int, loss_f: float) -> dict[str, float]:
        """That the step is the ascent's, at a share of the outer rate, which the scheduler has set."""
        return {"ascent": self.lr_ratio}


class PathSteps(Stepper):
    """Steps of both loops as long as it takes to follow the lower level's path, by Polyak's rule (``core.polyak``).

    Ascents go towards held-out rows' losses, by a quarter of the gap where a penalty goes by their running mean, and
    descents back to each retain row's own. A path means the same on every model, so there is no rate to choose:
    ``optimizer``, ``scheduler``, ``gradient_clip`` and ``safeguards.inner_clip`` are unused.
    """

    remedy = "choose rates yourself by model.stepper SharedSteps"
    outer_options = MappingProxyType({"optimizer": partial(Polyak, lr=2.0), "scheduler": None, "gradient_clip": None})
    follows_distance = True
    keeps_mean = True

    def __init__(self) -> None:
        super().__init__(1.0)

    def within(self, safeguards: Safeguards) -> Safeguards:
        """No bound on the ascent's direction, by whose size the step is found."""
        return replace(safeguards, inner_clip=None)

    def own_optimizers(self, outer: Optimizer, network: nn.Module, *, mean: bool) -> list[Optimizer]:
        """Polyak's rule for the ascent."""
        options = {"lr": GAP_SHARE_BACK, "mean": INNER_BETAS[0]} if mean else {}
        return [Polyak(trainable(network), **options)]

    def mean(self, run: Run) -> Vector:
        """Minus the running mean of the distance's gradient, which Polyak's rule goes against."""
        return cast(Polyak, run.optimizers[1]).ascent_mean()

    def arguments(self, lower: LowerLevel, batches: Sequence[Batch], t: int, loss_f: float) -> dict[str, float]:
        """How far the path is ahead of the batch."""
        assert lower.goal is not None, "OFMU refuses a lower level without a goal"
        return {"gap": lower.goal.gap(batches[t], len(batches) - 1, t, loss_f)}

    def outer_arguments(self, scalars: dict[str, float]) -> dict[str, float]:
        """How far the retain loss is above its goal."""
        return {"gap": scalars["retain_rise"]}
