r"""Algorithm 1 of the paper: one outer iteration, up to the outer step.

for t = 1 .. T:   theta <- theta + eta_in clip(grad Phi(theta; B_f^t, B_r^t))       (paper, eq. of the inner loop)
at theta_in:      g = grad L_r + 2 rho_k Hess(Phi) grad Phi          on a fresh (B_f', B_r') (``objective.py``)
then, outside:    theta <- theta - eta_out g,   rho_{k+1} = gamma rho_k      (an optimizer, and ``safeguards.py``)

``clip`` is ours (``None``: as printed): right after memorisation |grad Phi| spans six orders of magnitude, and a
plain step either changes nothing or destroys the model. An optimizer's step can replace the plain one, because the
paper's experiments read so ("all [...] are conducted using the AdamW optimizer").

What runs add to this stands in ``variants.py``.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.objective import OuterGradient, Phi, outer_gradient
from ofmu_pl.core.reach import Back, displaced
from ofmu_pl.core.safeguards import AS_PRINTED, Safeguards
from ofmu_pl.core.vectors import Vector, add_, clip_

Step = Callable[[int, float, Vector], None]
"""Takes ascent step t, from 0, along a direction, given L_f before the step."""


@dataclass
class InnerStep:
    """What one ascent step saw.

    Attributes:
        loss_f: L_f on B_f before the step, where the gradient was taken.
        grad_phi_norm: |grad Phi| before clipping.
    """

    loss_f: float
    grad_phi_norm: float


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


def ascend(
    engine: Engine,
    pairs: Iterable[tuple[Loss, Loss]],
    lr: float,
    beta: float,
    safeguards: Safeguards = AS_PRINTED,
    step: Step | None = None,
    decorrelation: Vector | None = None,
    back: Back | None = None,
) -> list[InnerStep]:
    """Move the engine's parameters by one ascent step per pair.

    With ``beta`` 0 and no ``decorrelation`` this is plain ascent on L_f, and retain losses are not computed.

    Args:
        engine: Differentiates the losses and holds the parameters.
        pairs: (L_f, L_r) on fresh batches, one pair per step.
        lr: eta_in of plain steps.
        beta: Weight of the similarity.
        safeguards: Floor of norms, cap of the direction, and where the similarity counts.
        step: Takes the steps; ``None``: plain ones.
        decorrelation: The similarity's part of grad Phi for every step, where it is known; ``None``: each step computes
            its own, at two gradients and two Hessian-vector products.
        back: Where each step's gradient is taken, seen from the parameters (``reach.py``); ``None``: where they are.

    Example:
        On L_f = theta^2 / 2 without the similarity a step of 0.5 makes theta half as large again.

        >>> from ofmu_pl import Autograd
        >>> theta = torch.tensor([2.0], requires_grad=True)
        >>> forget = [lambda: (theta**2).sum() / 2]
        >>> ascend(Autograd([theta]), [(forget, forget)] * 2, lr=0.5, beta=0.0)
        [InnerStep(loss_f=2.0, grad_phi_norm=2.0), InnerStep(loss_f=4.5, grad_phi_norm=3.0)]
        >>> theta.tolist()
        [4.5]
    """
    steps = []
    for t, (forget, retain) in enumerate(pairs):
        with displaced(engine.parameters, back(t)) if back else nullcontext():
            if beta and decorrelation is None:
                phi = Phi(engine, forget, retain, beta, safeguards.floor, aligned_only=safeguards.aligned_only)
                loss_f, direction = phi.f.value, phi.gradient()
                del phi  # its gradients are not needed again
            else:
                expansion = engine.expand(forget, order=1)
                loss_f, direction = expansion.value, expansion.gradient
        if decorrelation is not None:
            add_(direction, [(1.0, decorrelation)])
        size = clip_(direction, safeguards.inner_clip)
        if step is None:
            with torch.no_grad():
                add_(engine.parameters, [(lr, direction)])
        else:
            step(t, loss_f, direction)
        steps.append(InnerStep(loss_f, size))
    return steps


def outer_iteration(
    engine: Engine, pairs: Sequence[tuple[Loss, Loss]], eta_in: float, rho: float, beta: float
) -> OuterIteration:
    """Ascend on Phi, then differentiate F where the ascent ended; the engine's parameters stay there, at theta_in.

    This is the algorithm to read and to test against; runs go by ``variants.py``, which adds bounds and orders.

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
