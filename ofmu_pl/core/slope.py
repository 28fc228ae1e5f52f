r"""A step that lowers |grad Phi| by a share and has no rate of its own.

    h     = Hess(Phi) grad Phi = grad |grad Phi|^2 / 2
    theta <- theta - share |grad Phi|^2 h / |h|^2            |grad Phi| <- (1 - share) |grad Phi|, to first order

The step stands for the penalty of the paper's outer step (eq. for grad F) where no learning rate can scale rho. It is
taken at theta, before an iteration's ascents.
"""

import torch

from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.objective import OuterGradient, outer_gradient
from ofmu_pl.core.safeguards import Safeguards
from ofmu_pl.core.vectors import add_


def flatten(
    engine: Engine, forget: Loss, retain: Loss, beta: float, share: float, safeguards: Safeguards
) -> OuterGradient:
    """Take the step; returns the parts of the outer gradient before it, with h as the ``penalty``.

    L_f is the plain loss, ``share`` how much of |grad Phi| is to go, from 0 to 1. No clip of the safeguards is for this
    step.

    Example:
        For L_f = |theta|^2 / 2 the gradient is theta, and half of it goes.

        >>> from ofmu_pl.core.autograd import Autograd
        >>> theta = torch.tensor([4.0, 2.0], requires_grad=True)
        >>> forget = [lambda: (theta**2).sum() / 2]
        >>> parts = flatten(Autograd([theta]), forget, forget, beta=0.0, share=0.5, safeguards=Safeguards())
        >>> theta.tolist()
        [2.0, 1.0]
    """
    unbounded = Safeguards(None, None, safeguards.norm_floor, None, safeguards.aligned_only)
    parts = outer_gradient(engine, forget, retain, 0.5, beta, unbounded)
    if parts.penalty_norm:
        length = share * parts.grad_phi_norm**2 / parts.penalty_norm**2
        with torch.no_grad():
            add_(engine.parameters, [(-length, parts.penalty)])
    return parts
