r"""The first-order engine: derivatives as differences of gradients, in place.

Only ``term().backward()`` at displaced parameters is used, so fused attention, activation checkpointing and
sharded parameters work, and no graph of a graph is ever alive.

    forward    H u  ~ (g(theta + d u) - g(theta)) / d                  error O(d), one gradient more
    central    H u  ~ (g(theta + d u) - g(theta - d u)) / (2 d)        error O(d^2), two gradients more

Step rule: ``d |u| = step (1 + |theta|)``. ``step`` serves gradients (H u), ``field_step`` the derivative of a
field that holds differences itself (Hess(Phi) v as a difference of grad Phi). Defaults by scheme and dtype, for all
weights of a model (``core.steps`` finds others where only some are trained):

    float32   forward 3e-5 / 1e-5    central 1e-4 / 3e-5    (on a memorised tiny Llama relative error of the
              decorrelation part 1.5e-2 / 2e-3, of Hess(Phi) v cosine 0.998 and 7e-3; steps of 1e-2 are useless)
    float64   forward 1e-8 / 1e-5    central 1e-5 / 2e-5    (smooth networks: relative error below 1e-5 / 1e-6 for the
              decorrelation part, 1e-2 / 1e-4 for Hess(Phi) v; tests/core/test_objective.py)

The engine does not suit networks with kinks (ReLU): a difference sees the kinks that the Hessian does not.
The parameters return bit for bit to their values, also when a term raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from ofmu_pl.core.derivatives import Loss, hvp
from ofmu_pl.core.ranks import ALONE, Ranks
from ofmu_pl.core.vectors import (
    Combination,
    Vector,
    add_,
    combination_norm,
    copy_,
    is_sharded,
    norm,
    set_gradients,
    zeros_like,
)

Scheme = Literal["forward", "central"]
STEPS: dict[tuple[torch.dtype, str], tuple[float, float]] = {
    (torch.float32, "forward"): (3e-5, 1e-5),
    (torch.float32, "central"): (1e-4, 3e-5),
    (torch.float64, "forward"): (1e-8, 1e-5),
    (torch.float64, "central"): (1e-5, 2e-5),
}


class FiniteDifference:
    """Differences of gradients of losses of ``parameters``.

    Args:
        parameters: Leaf tensors, float32 or float64.
        scheme: ``forward`` (cheaper) or ``central`` (more exact).
        step: Relative size of a displacement for H u; ``None`` is the table in the module's text.
        field_step: Relative size of a displacement for ``along``; ``None`` likewise.
        ranks: Processes that share each batch.

    Attributes:
        default_steps: The two steps as given; ``set_steps`` changes ``step`` and ``field_step`` alone.

    Raises:
        TypeError: Parameters are neither float32 nor float64: a small displacement would round away.

    Example:
        For L = theta^3 the gradient is 3 theta^2, and H u is 6 theta u, here to six digits.

        >>> theta = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
        >>> engine = FiniteDifference([theta], scheme="central")
        >>> cube = engine.expand([lambda: (theta**3).sum()])
        >>> out = [torch.zeros(1, dtype=torch.float64)]
        >>> cube.add_hvp(out, 1.0, [(1.0, [torch.ones(1)])])
        >>> cube.value, cube.gradient[0].item(), round(out[0].item(), 6)
        (8.0, 12.0, 12.0)
        >>> engine.gradient_evaluations
        3.0
    """

    first_order = True

    def __init__(
        self,
        parameters: Sequence[Tensor],
        scheme: Scheme = "forward",
        step: float | None = None,
        field_step: float | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.parameters, self.ranks = list(parameters), ranks
        dtype = self.parameters[0].dtype
        if (dtype, scheme) not in STEPS:
            raise TypeError(f"finite differences need float32 or float64 parameters, these are {dtype}")
        self.scheme = scheme
        of_dtype = STEPS[dtype, scheme]
        self.default_steps = (of_dtype[0] if step is None else step, of_dtype[1] if field_step is None else field_step)
        self.set_steps(*self.default_steps)
        self.gradient_evaluations = 0.0
        self._origin: Vector = []
        self._displacements: list[Combination] = []

    def set_steps(self, step: float, field_step: float) -> None:
        """Take these steps from now on."""
        self.step, self.field_step = step, field_step

    def expand(self, loss: Loss, order: int = 2) -> DifferenceExpansion:
        """Compute value and gradient; products are differences of further gradients, whatever ``order``."""
        gradient = zeros_like(self.parameters)
        value = self.add_gradient(gradient, 1.0, loss)
        return DifferenceExpansion(self, loss, value, gradient)

    def add_gradient(self, out: Vector, alpha: float, loss: Loss) -> float:
        """In place ``out += alpha g`` at the displaced parameters; returns the loss."""
        return self.ranks.total(float(self.accumulate(out, alpha, loss)))

    def accumulate(self, out: Vector, alpha: float, loss: Loss) -> Tensor | float:
        """In place ``out += alpha g``, one backward pass per term; returns this rank's part of the loss, on the device.

        ``out`` stands in for ``.grad`` meanwhile, so that nothing of a gradient's size is allocated; only where ranks
        hold whole vectors must their sums be kept apart from what ``out`` already holds.
        """
        weight = alpha * self.ranks.size if is_sharded(out) else alpha  # FSDP2 takes the mean over ranks
        kept = [p.grad for p in self.parameters]
        value: Tensor | float = 0.0
        with self.ranks.adding(out) as part:
            set_gradients(self.parameters, part)
            try:
                for term in loss:
                    x = term()
                    (weight * x).backward()
                    value = value + x.detach().double()
            finally:
                set_gradients(self.parameters, kept)
        self.gradient_evaluations += 1
        return value

    def differences(self, direction: Combination, step: float) -> list[tuple[Combination, float]]:
        """The displacements of the scheme and their weights: D f ~ sum_i weight_i f(theta + displacement_i).

        With ``forward`` the weight of the undisplaced point is minus the sum. Empty for a zero direction.
        """
        size = combination_norm(direction)
        if size == 0.0:
            return []
        d = step * (1 + norm(self._origin or self.parameters)) / size
        ahead = [(c * d, x) for c, x in direction]
        if self.scheme == "forward":
            return [(ahead, 1 / d)]
        return [(ahead, 0.5 / d), ([(-c, x) for c, x in ahead], -0.5 / d)]

    @contextmanager
    def displaced(self, displacement: Combination) -> Iterator[None]:
        """Run with parameters moved by ``displacement`` (on top of those already in force), then move back."""
        if not self._displacements:
            self._origin = [p.detach().clone() for p in self.parameters]
        self._displacements.append(displacement)
        self._move()
        try:
            yield
        finally:
            self._displacements.pop()
            self._move()
            if not self._displacements:
                self._origin = []

    @torch.no_grad()
    def _move(self) -> None:
        """Theta = origin + displacements, recomputed from the origin: the same sum gives the same bits."""
        copy_(self.parameters, self._origin)
        for displacement in self._displacements:
            add_(self.parameters, displacement)

    def along(self, field: Callable[[], Vector], v: Vector, base: Vector) -> Vector:
        """Derivative of ``field`` along ``v`` by the scheme, with ``field_step``; ``base`` is its present value."""
        out: Vector = []
        for displacement, weight in self.differences([(1.0, v)], self.field_step):
            with self.displaced(displacement):
                value = field()
            out = out or zeros_like(value)
            add_(out, [(weight, value)])
            if self.scheme == "forward":
                add_(out, [(-weight, base)])
        return out or zeros_like(base)


class DifferenceExpansion:
    """A loss expanded by differences of gradients around the parameters' present values."""

    def __init__(self, engine: FiniteDifference, loss: Loss, value: float, gradient: Vector) -> None:
        self.engine, self.loss, self.value, self.gradient = engine, loss, value, gradient

    def add_hvp(self, out: Vector, alpha: float, u: Combination) -> None:
        """In place ``out += alpha H u``: one more gradient (forward), or two (central)."""
        for displacement, weight in self.engine.differences(u, self.engine.step):
            with self.engine.displaced(displacement):
                self.engine.accumulate(out, alpha * weight, self.loss)
            if self.engine.scheme == "forward":
                add_(out, [(-alpha * weight, self.gradient)])

    def third(self, u: Combination, v: Vector, w: Combination) -> Vector:
        """``D3L[u, v] + H w``: the difference of H u along v, plus H w."""

        def product() -> Vector:
            return hvp(self.engine.expand(self.loss), u)

        out = self.engine.along(product, v, base=product())
        self.add_hvp(out, 1.0, w)
        return out
