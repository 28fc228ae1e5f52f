r"""Algorithm 1 of the paper: one outer iteration, up to the outer step.

for t = 1 .. T:   theta <- theta + eta_in grad Phi(theta; B_f^t, B_r^t)              the ascent (``inner.py``)
at theta_in:      g = grad L_r + 2 rho_k Hess(Phi) grad Phi          on a fresh (B_f', B_r') (``objective.py``)
then, outside:    theta <- theta - eta_out g,   rho_{k+1} = gamma rho_k      (an optimizer, and ``penalty.py``)

What runs add to this stands in ``variants.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.inner import InnerStep, ascend
from ofmu_pl.core.objective import OuterGradient, outer_gradient
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
    engine: Engine, pairs: Sequence[tuple[Loss, Loss]], eta_in: float, rho: float, beta: float
) -> OuterIteration:
    """Ascend on Phi, then differentiate F where the ascent ended; the engine's parameters stay there, at theta_in.

    Args:
        engine: Differentiates the losses and holds the parameters.
        pairs: (L_f, L_r) on T + 1 fresh pairs of batches: T for the ascent, the last for the outer gradient.
        eta_in: Learning rate of the ascent.
        rho: Penalty parameter rho_k.
        beta: Weight of the similarity in Phi.

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
    """
    ascent = ascend(engine, pairs[:-1], eta_in, beta)
    parts = outer_gradient(engine, *pairs[-1], rho, beta)
    return OuterIteration(parts.total_(), parts.loss_r, ascent, parts)
