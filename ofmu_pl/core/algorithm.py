r"""Algorithm 1 of the paper: one outer iteration, up to the outer step.

for t = 1 .. T:   theta <- theta + eta_in grad Phi(theta; B_f^t, B_r^t)              the ascent (``inner.py``)
at theta_in:      g = grad L_r + 2 rho_k Hess(Phi) grad Phi          on a fresh (B_f', B_r') (``objective.py``)
then, outside:    theta <- theta - eta_out g,   rho_{k+1} = gamma rho_k      (an optimizer, and ``penalty.py``)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch.optim import Optimizer

from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.inner import InnerStep, ascend
from ofmu_pl.core.objective import OuterGradient, outer_gradient
from ofmu_pl.core.vectors import Vector, scale_


@dataclass
class OuterIteration:
    """What one outer iteration found.

    Attributes:
        gradient: The direction that the outer step descends along, one tensor per parameter: grad F, or g_r alone.
        loss_r: L_r on B_r' where the outer gradient was taken, at theta_in unless it was asked for at theta.
        ascent: One record per ascent step.
        parts: The parts of grad F; ``None`` where the iteration was of first order.
    """

    gradient: Vector
    loss_r: float
    ascent: list[InnerStep]
    parts: OuterGradient | None

    def scalars(self) -> dict[str, float]:
        """Numbers that the iteration measured, by name; what it left out is not among them."""
        first, parts = self.ascent[0], self.parts
        measured = {"inner/L_f": first.loss_f, "inner/grad_Phi": first.grad_phi_norm}
        if parts is None:
            return measured | {"L_r": self.loss_r}
        return measured | {
            "L_f": parts.loss_f,
            "L_r": self.loss_r,
            "Sim": parts.similarity,
            "grad_Phi": parts.grad_phi_norm,
            "grad_L_r": parts.retain_norm,
            "penalty": parts.penalty_norm,
            "curvature": parts.curvature,
        }


def outer_iteration(
    engine: Engine,
    pairs: Sequence[tuple[Loss, Loss]],
    eta_in: float,
    rho: float,
    beta: float,
    *,
    floor: float = 0.0,
    inner_clip: float | None = None,
    penalty_clip: float | None = None,
    concave_only: bool = False,
    similarity_every: int = 1,
    inner_optimizer: Optimizer | None = None,
    first_order: bool = False,
    gap: Callable[[int, float], float] | None = None,
    sam_rho: float | None = None,
    retain_weight: float = 1.0,
    outer_at_start: bool = False,
) -> OuterIteration:
    """Ascend on Phi, then differentiate F where the ascent ended; the engine's parameters stay there, at theta_in.

    Without the options after ``beta`` this is the algorithm as printed.

    Args:
        engine: Differentiates the losses and holds the parameters.
        pairs: (L_f, L_r) on T + 1 fresh pairs of batches: T for the ascent, the last for the outer gradient.
        eta_in: Learning rate of the ascent.
        rho: Penalty parameter rho_k.
        beta: Weight of the similarity in Phi.
        floor: Floor of the gradients' norms inside the similarity.
        inner_clip: Largest norm of an ascent direction; ``None`` leaves it.
        penalty_clip: Largest norm of the penalty's part, in multiples of |g_r|; ``None`` leaves it.
        concave_only: Leave the penalty out where Phi curves upwards along its gradient.
        similarity_every: Ascent steps between two evaluations of the similarity's part of grad Phi.
        inner_optimizer: Takes the ascent steps; ``None``: plain steps.
        gap: How far an ascent step is to raise L_f, for a ``Polyak`` as ``inner_optimizer`` (``inner.ascend``).
        sam_rho: Distance within which an ascent step asks for the gradient of L_f where L_f is least.
        retain_weight: Factor of g_r in the outer gradient, such as the price of keeping L_r below a bound.
        first_order: Leave out everything that needs second derivatives: plain ascent on L_f, and g_r.
        outer_at_start: Take the outer gradient at theta, before the ascent, and not at theta_in, after it. At theta_in
            it contains, to first order, Hess(L_r) times the ascent's step, by which the descent takes a part of the
            ascent back.

    Returns:
        The direction to descend along, and what was seen on the way.

    Example:
        Two quadratics, L_f = |theta - p|^2 / 2 and L_r = |theta - q|^2 / 2, so that grad Phi = theta - p without the
        similarity. The ascent doubles the distance to p; then grad F = (theta_in - q) + 2 rho (theta_in - p).

        >>> import torch
        >>> from ofmu_pl.core.autograd import Autograd
        >>> p, q = torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])
        >>> theta = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> forget, retain = [lambda: ((theta - p) ** 2).sum() / 2], [lambda: ((theta - q) ** 2).sum() / 2]
        >>> found = outer_iteration(Autograd([theta]), [(forget, retain)] * 2, eta_in=1.0, rho=0.5, beta=0.0)
        >>> theta.tolist()
        [2.0, 2.0]
        >>> [g.tolist() for g in found.gradient]
        [[3.0, 4.0]]

        With the outer gradient at theta, here (1, 1) again: (theta - q) + 2 rho (theta - p).

        >>> with torch.no_grad():
        ...     _ = theta.fill_(1.0)
        >>> pairs = [(forget, retain)] * 2
        >>> found = outer_iteration(Autograd([theta]), pairs, eta_in=1.0, rho=0.5, beta=0.0, outer_at_start=True)
        >>> theta.tolist(), [g.tolist() for g in found.gradient]
        ([2.0, 2.0], [[1.0, 2.0]])
    """
    higher_order_beta = 0.0 if first_order else beta

    def outer() -> tuple[Vector, float, OuterGradient | None]:
        forget, retain = pairs[-1]
        if first_order:
            g_r = engine.expand(retain, order=1)
            if retain_weight != 1:
                scale_(g_r.gradient, retain_weight)
            return g_r.gradient, g_r.value, None
        parts = outer_gradient(engine, forget, retain, rho, beta, floor, penalty_clip, concave_only)
        if retain_weight != 1:
            scale_(parts.retain, retain_weight)
        return parts.total_(), parts.loss_r, parts

    before = outer() if outer_at_start else None
    ascent = ascend(
        engine,
        pairs[:-1],
        eta_in,
        higher_order_beta,
        floor,
        inner_clip,
        similarity_every,
        optimizer=inner_optimizer,
        gap=gap,
        sam_rho=sam_rho,
    )
    gradient, loss_r, parts = before or outer()
    return OuterIteration(gradient, loss_r, ascent, parts)
