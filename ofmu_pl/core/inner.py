r"""Algorithm 1's inner loop: T steps of gradient ascent on Phi, in place.

    theta'^{t+1} = theta'^t + eta_in clip(grad Phi(theta'^t; B_f^t, B_r^t))          (paper, eq. of the inner loop)

``clip`` is ours (``None``: as printed): right after memorisation |grad Phi| spans six orders of magnitude, and a
plain step either changes nothing or destroys the model. An ``optimizer`` takes the place of the plain step because the
paper's experiments read so ("all [...] are conducted using the AdamW optimizer").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.objective import Phi
from ofmu_pl.core.polyak import Polyak
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.core.sharpness import shifted
from ofmu_pl.core.vectors import Vector, add_, clip_, scale_


@dataclass
class InnerStep:
    """What one ascent step saw.

    Attributes:
        loss_f: L_f on B_f before the step.
        grad_phi_norm: |grad Phi| before clipping.
    """

    loss_f: float
    grad_phi_norm: float


def ascend(
    engine: Engine,
    pairs: Iterable[tuple[Loss, Loss]],
    lr: float,
    beta: float,
    floor: float = 0.0,
    clip: float | None = None,
    similarity_every: int = 1,
    optimizer: Optimizer | None = None,
    gap: Callable[[int, float], float] | None = None,
    sam_rho: float | None = None,
) -> list[InnerStep]:
    """Move the engine's parameters by one ascent step per pair.

    Args:
        engine: Differentiates the losses and holds the parameters.
        pairs: (L_f, L_r) on fresh batches, one pair per step.
        lr: eta_in.
        beta: Weight of the similarity; 0 is plain ascent on L_f and leaves the retain losses untouched.
        floor: Floor of the gradient norms inside the similarity.
        clip: Largest norm of the step's direction; ``None`` leaves it.
        similarity_every: Number of steps after which the decorrelation part of grad Phi is computed anew; it is reused
            between them (1: it is always new, the algorithm as written). A reused part costs nothing, a new one two
            gradients and two Hessian-vector products.
        optimizer: Optimizer of the engine's parameters, which takes the ascent step with the rate ``lr``. ``None``: a
            plain step.
        gap: Maps the number t of a step and L_f before it to how far L_f is to rise; for ``Polyak`` alone, whose steps
            follow from it (``lr`` is then a factor).
        sam_rho: Length of the shift to where, to first order, L_f is least within that distance; there its gradient is
            taken, at one gradient more a step, while the similarity's part stays that at the present point. ``None``:
            no shift.

    Returns: One record per step.

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
    decorrelation: Vector | None = None
    for t, (forget, retain) in enumerate(pairs):
        if beta and t % similarity_every == 0:
            decorrelation = None  # frees it before the next one is made
            phi = Phi(engine, forget, retain, beta, floor)
            decorrelation, loss_f, direction = phi.decorrelation(), phi.f.value, phi.f.gradient
        else:
            expansion = engine.expand(forget, order=1)
            loss_f, direction = expansion.value, expansion.gradient
        if sam_rho is not None:  # the ascent is to last, so the worst place is the one where least is forgotten
            with shifted(engine.parameters, direction, -sam_rho):
                direction = engine.expand(forget, order=1).gradient
        if decorrelation is not None:
            add_(direction, [(1.0, decorrelation)])
        size = clip_(direction, clip)
        if optimizer is None:
            with torch.no_grad():
                add_(engine.parameters, [(lr, direction)])
        else:
            if isinstance(optimizer, Polyak) and gap is not None:
                optimizer.gap = gap(t, loss_f)
            _against(optimizer, engine.parameters, direction, lr)
        steps.append(InnerStep(loss_f, size))
    return steps


def _against(optimizer: Optimizer, parameters: Vector, direction: Vector, lr: float) -> None:
    """Ascend along ``direction``, which is overwritten, by one step of an optimizer, which descends."""
    scale_(direction, -1.0)
    for p, d in zip(parameters, direction, strict=True):
        p.grad = d
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = lr
    with optimizer.ascending() if isinstance(optimizer, SharedAdam) else nullcontext():
        optimizer.step()
    optimizer.zero_grad()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
