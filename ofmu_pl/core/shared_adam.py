r"""Adam for two loops that move the same parameters: one metric, two momenta.

    v     <- b_2 v + (1 - b_2) g^2                          of the gradients of both loops
    m_f   <- b_1 m_f + (1 - b_1) g,     m_r likewise        of the ascent's and of the descent's alone
    theta <- theta - eta m / (sqrt(v) + eps)                m that of the loop in turn; both without bias

An ascent with an Adam of its own takes full steps however small grad Phi is, since Adam divides a gradient by its own
size. Not even a forget loss bent at a ceiling stops such an ascent. In one metric the ascent's step shrinks with its
gradient, and the pulls of both sides are weighed in one unit. Both loops have one learning rate, so one scheduler
anneals them.

At the same rate an iteration of one ascent and one descent goes sqrt(2) times as far as Adam on the sum of both
gradients: v is the mean of their squares, and the square of the sum of two gradients that have nothing to do with each
other is twice that. A rate that was found for a method of one level is to be divided by sqrt(2).

``GradientOptimizer`` is the base of all optimizers of ``core``.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class GradientOptimizer(Optimizer):
    """Moves parameters by the gradients that they have."""

    @abstractmethod
    def move(self, *args: Any, **given: Any) -> None:
        """Take one step, without a graph."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, **given: float) -> Any:
        """Call the closure, if any, with gradients enabled, take one step, and return what the closure returned."""
        returned = None
        if closure is not None:
            with torch.enable_grad():
                returned = closure()
        self.move(**given)
        return returned


class SharedAdam(GradientOptimizer):
    """Adam with one second moment for ascent and descent, and a first moment for each.

    Args:
        params: Parameters.
        lr: Learning rate of both loops.
        betas: Decay of the first moments, and of the second one, per step of either loop.
        eps: Smallest denominator of a step.

    Raises:
        ValueError: A number is out of range.

    Example:
        The descent's gradient is ten times the ascent's, so is its step; with an Adam each they would be alike.

        >>> theta = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = SharedAdam([theta], lr=1.0, betas=(0.0, 0.999))
        >>> steps = []
        >>> for gradient in (10.0, 1.0):
        ...     theta.grad, before = torch.tensor([gradient]), theta.item()
        ...     optimizer.step()
        ...     steps.append(round(before - theta.item(), 2))
        >>> steps
        [1.0, 0.14]
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.99), eps: float = 1e-8
    ) -> None:
        if lr < 0 or eps <= 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"lr={lr} must be at least 0, eps={eps} above 0, betas={betas} in [0, 1)")
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps})

    def ascent_mean(self) -> list[Tensor]:
        """The ascent's first moment in the metric of both loops, pointing up; empty before the ascent has stepped.

        The way up is what the ascent's steps go against the gradients that they are given: ``-m_f / (sqrt(v) + eps)``,
        one tensor a parameter.
        """
        found = []
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state or not state["ascent_step"]:
                    return []
                size = metric(state["square"], group["betas"][1], state["step"], group["eps"])
                found.append(-state["ascent_mean"] / size)
        return found

    def move(self, ascent: float | None = None) -> None:
        """One step against the gradients that the parameters have.

        Args:
            ascent: Share of the rate that a step of the ascent's has, with its first moment; ``None``: the descent's.
        """
        loop, share = ("descent", 1.0) if ascent is None else ("ascent", ascent)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, p.grad, loop, share * group["lr"], group["betas"], group["eps"])

    def _move(self, p: Tensor, g: Tensor, loop: str, lr: float, betas: tuple[float, float], eps: float) -> None:
        state, (beta_1, beta_2) = self.state[p], betas
        if not state:
            state |= {"step": 0, "square": torch.zeros_like(p)}
            for own in ("ascent", "descent"):
                state |= {f"{own}_step": 0, f"{own}_mean": torch.zeros_like(p)}
        state["step"] += 1
        state[f"{loop}_step"] += 1
        state["square"].mul_(beta_2).addcmul_(g, g, value=1 - beta_2)
        mean = state[f"{loop}_mean"].mul_(beta_1).add_(g, alpha=1 - beta_1)
        size = metric(state["square"], beta_2, state["step"], eps)
        p.addcdiv_(mean, size, value=-lr / (1 - beta_1 ** state[f"{loop}_step"]))


def metric(square: Tensor, beta: float, step: float, eps: float) -> Tensor:
    """Adam's metric, ``sqrt(v / (1 - beta^step)) + eps``, of a second moment v with the decay beta after so many steps.

    >>> metric(torch.tensor([0.04]), beta=0.99, step=1, eps=0.0)
    tensor([2.])
    """
    unbiased: Tensor = square / (1 - beta**step)
    return unbiased.sqrt_().add_(eps)
