r"""Polyak's step in Adam's metric: as long as it takes, to first order, to bring a loss to a value that is known.

    v     <- b v + (1 - b) g^2,     d = g / (sqrt(v) + eps), v bias-corrected
    theta <- theta - lr (gap / <g, d>) d                        gap = L(theta) - (the value wanted)

The rate has no unit of its own, so the same setting serves models of any size, and the step vanishes with the gap:
nothing is annealed. Where losses can be brought to the value of each batch, as those of rows that a model once knew,
the method converges (Polyak 1969; Loizou, Vaswani, Laradji, Lacoste-Julien 2021, "Stochastic Polyak step-size").
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ofmu_pl.core.shared_adam import GradientOptimizer, metric
from ofmu_pl.core.vectors import Vector, add_, dot


class Polyak(GradientOptimizer):
    """Descends towards a value of the loss that each step is told.

    Args:
        params: Parameters.
        lr: Share of the gap that a step is to close, to first order.
        beta: Decay of the second moment v.
        eps: Smallest denominator of the direction.
        mean: Decay of a running mean of the gradients, which moves nothing (``ascent_mean``); 0: there is none.
        growth: A step's rate is at most this multiple of the largest recent rate, which falls by at most this factor a
            step. It is bounded since a gradient that vanishes says little about how far to go.

    Example:
        The distance |theta - 3| from 0 to 1 is two units away, and a step takes them.

        >>> theta = torch.nn.Parameter(torch.tensor([0.0]))
        >>> optimizer = Polyak([theta])
        >>> loss = (theta - 3).abs().sum()
        >>> loss.backward()
        >>> optimizer.step(gap=loss.item() - 1)
        >>> round(theta.item(), 5)
        2.0
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1.0,
        beta: float = 0.99,
        eps: float = 1e-12,
        growth: float = 1.5,
        mean: float = 0.0,
    ) -> None:
        options = {"lr": lr, "beta": beta, "eps": eps, "growth": growth, "mean": mean}
        super().__init__(params, options | {"rate": 0.0, "bound": 0.0})

    def move(self, gap: float = 0.0) -> None:
        """One step along the gradients that the parameters have.

        Args:
            gap: Loss at the parameters' values of now minus the value wanted, in the loss's unit. Where it is zero or
                less there is nothing to do, and the step only learns of the gradient.
        """
        (group,) = self.param_groups
        parameters = [p for p in group["params"] if p.grad is not None]
        gradients = [p.grad for p in parameters]
        directions = [self._direction(p, group) for p in parameters]
        slope = dot(gradients, directions) if parameters else 0.0
        rate = 0.0
        if gap > 0 and slope > 0:
            rate = gap / slope
            if group["bound"]:
                rate = min(rate, group["bound"])
            # A small step, near the goal or on an easy batch, tightens the bound slowly.
            group["bound"] = group["growth"] * max(rate, group["bound"] / group["growth"] ** 2)
            rate *= group["lr"]
            add_(parameters, [(-rate, directions)])
        group["rate"] = rate

    def ascent_mean(self) -> Vector:
        """Minus the running mean of the gradients in the steps' metric, the way up; empty before the first step."""
        (group,) = self.param_groups
        states = [self.state[p] for p in group["params"]]
        if not all(states):
            return []
        return [-s["mean"] / metric(s["square"], group["beta"], s["step"], group["eps"]) for s in states]

    def _direction(self, p: Tensor, group: dict[str, Any]) -> Tensor:
        state, beta = self.state[p], group["beta"]
        if not state:
            state |= {"step": 0, "square": torch.zeros_like(p)}
            if group["mean"]:
                state["mean"] = torch.zeros_like(p)
        state["step"] += 1
        assert p.grad is not None, "only parameters with gradients are stepped"
        state["square"].mul_(beta).addcmul_(p.grad, p.grad, value=1 - beta)
        if group["mean"]:
            state["mean"].mul_(group["mean"]).add_(p.grad, alpha=1 - group["mean"])
        return p.grad / metric(state["square"], beta, state["step"], group["eps"])
