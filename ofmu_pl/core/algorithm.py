r"""Algorithm 1 of the paper: one outer iteration, up to the outer step.

for t = 1 .. T:   theta <- theta + eta_in grad Phi(theta; B_f^t, B_r^t)              the ascent (``inner.py``)
at theta_in:      g = grad L_r + 2 rho_k Hess(Phi) grad Phi          on a fresh (B_f', B_r') (``objective.py``)
then, outside:    theta <- theta - eta_out g,   rho_{k+1} = gamma rho_k      (an optimizer, and ``penalty.py``)
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.inner import InnerStep, Step, ascend
from ofmu_pl.core.objective import OuterGradient, outer_gradient
from ofmu_pl.core.safeguards import AS_PRINTED, Safeguards
from ofmu_pl.core.vectors import Vector


@dataclass
class OuterIteration:
    """What one outer iteration found.

    Attributes:
        gradient: The direction that the outer step descends along, one tensor per parameter: grad F, or g_r alone.
        loss_r: L_r on B_r' where the outer gradient was taken.
        ascent: One record per ascent step.
        parts: The parts of grad F; ``None`` where the iteration was of first order.
    """

    gradient: Vector
    loss_r: float
    ascent: list[InnerStep]
    parts: OuterGradient | None

    def scalars(self) -> dict[str, float]:
        """Numbers that the iteration measured, by name; what it left out is not among them."""
        first = self.ascent[0]
        measured = {"inner/L_f": first.loss_f, "inner/grad_Phi": first.grad_phi_norm}
        return measured | ({"L_r": self.loss_r} if self.parts is None else self.parts.scalars())


def outer_iteration(
    engine: Engine,
    pairs: Sequence[tuple[Loss, Loss]],
    eta_in: float,
    rho: float,
    beta: float,
    safeguards: Safeguards = AS_PRINTED,
    step: Step | None = None,
    *,
    first_order: bool = False,
    at_start: bool = False,
) -> OuterIteration:
    """Ascend on Phi, then differentiate F where the ascent ended; the engine's parameters stay there, at theta_in.

    Without the arguments after ``beta`` this is the algorithm as printed.

    Args:
        engine: Differentiates the losses and holds the parameters.
        pairs: (L_f, L_r) on T + 1 fresh pairs of batches: T for the ascent, the last for the outer gradient. L_f of the
            ascent may be bent at a ceiling; the last, whose slope the penalty lowers, is plain.
        eta_in: Learning rate of the ascent's plain steps.
        rho: Penalty parameter rho_k.
        beta: Weight of the similarity in Phi.
        safeguards: Bounds on the iteration's parts.
        step: Takes the ascent steps; ``None``: plain ones.
        first_order: Leave out everything that needs second derivatives: plain ascent on L_f, and g_r.
        at_start: Take the outer gradient at theta, before the ascent: at theta_in it contains, to first order,
            Hess(L_r) times the ascent's step, by which the descent takes a part of the ascent back. All ascents then
            use the similarity's part of grad Phi that the outer gradient took at theta.

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
        >>> found = outer_iteration(Autograd([theta]), pairs, eta_in=1.0, rho=0.5, beta=0.0, at_start=True)
        >>> theta.tolist(), [g.tolist() for g in found.gradient]
        ([2.0, 2.0], [[1.0, 2.0]])
    """

    def outer() -> tuple[Vector, float, OuterGradient | None]:
        forget, retain = pairs[-1]
        if first_order:
            g_r = engine.expand(retain, order=1)
            return g_r.gradient, g_r.value, None
        parts = outer_gradient(engine, forget, retain, rho, beta, safeguards)
        return parts.total_(), parts.loss_r, parts

    before = outer() if at_start else None
    shared = before[2].decorrelation if before and before[2] else None
    own_beta = 0.0 if first_order or at_start else beta
    ascent = ascend(engine, pairs[:-1], eta_in, own_beta, safeguards, step, shared)
    gradient, loss_r, parts = before or outer()
    return OuterIteration(gradient, loss_r, ascent, parts)
