r"""Algorithm 1's inner loop: T steps of gradient ascent on Phi, in place.

    theta'^{t+1} = theta'^t + eta_in clip(grad Phi(theta'^t; B_f^t, B_r^t))          (paper, eq. of the inner loop)

``clip`` is ours (``None``: as printed): right after memorisation |grad Phi| spans six orders of magnitude, and a
plain step either changes nothing or destroys the model. An optimizer's step can replace the plain one, because the
paper's experiments read so ("all [...] are conducted using the AdamW optimizer").
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.objective import Phi
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
