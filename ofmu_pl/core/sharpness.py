r"""Sharpness-aware minimisation: a loss differentiated where, near the weights, it is worst.

    g_SAM = g(theta + rho g(theta) / |g(theta)|)           (Foret et al. 2021; of forget losses: Fan et al. 2025)

To first order that is the gradient of the largest loss within a distance of rho. The shift counts as constant, as it
does in both papers, so one gradient more is all that it costs: to first order in rho, ``g_SAM = g + rho H g / |g|``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ofmu_pl.core.vectors import Vector, add_, copy_, norm


@contextmanager
def shifted(parameters: Sequence[Tensor], along: Vector, rho: float, keep: Sequence[Tensor] = ()) -> Iterator[None]:
    """A context in which the parameters are moved by ``rho along / |along|``; afterwards they have their old bits.

    ``along`` is the gradient, at these parameters, of a loss to be minimised; below 0 ``rho`` goes the other way, which
    is worst for a loss to be maximised. The norm is that of the whole vector, also where ranks hold shards of it, and a
    zero vector moves nothing. ``keep`` are further tensors that are to have their old values afterwards, such as
    statistics that passes update. Graphs made before are stale inside, and those made inside are stale afterwards.

    Example:
        The gradient of theta^2 / 2 is theta, and at a distance of rho further out it is rho longer.

        >>> theta = torch.tensor([3.0, 4.0], requires_grad=True)
        >>> with shifted([theta], [theta.detach().clone()], rho=5.0):
        ...     torch.autograd.grad((theta**2).sum() / 2, theta)
        (tensor([6., 8.]),)
        >>> theta.tolist()
        [3.0, 4.0]
    """
    size = norm(along)
    moved = [*parameters, *keep]
    before = [x.detach().clone() for x in moved]
    with torch.no_grad():
        if size:
            add_(parameters, [(rho / size, along)])
    try:
        yield
    finally:
        with torch.no_grad():
            copy_(moved, before)
