r"""The penalty at an attack's length: the ascent's gradient where relearning would be.

    u       the ascent's running mean in its optimizer's metric, m_f / (sqrt(v) + eps), of root mean square 1
    v_t     = grad Phi(theta - r s_t u)                        s_t = frac(0.618 t + 1/2), spread evenly over (0, 1)
            = grad Phi - r s_t Hess(Phi) u + O(r^2)
    theta  <- theta + eta_in v_t

The paper's outer step goes against ``2 rho Hess(Phi) grad Phi`` to lower |grad Phi|; an ascent along v_t goes against
``Hess(Phi) u``, with r s_t u in place of 2 rho grad Phi. So ascent and penalty are one gradient, and no step of
differences is sought. It is no longer grad F to the letter: it acts in the ascent's step, on the bent loss, and at a
finite length. An attacker's steps leave the neighbourhood in which the expansion holds; here the gradient is taken
where these steps lead.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from ofmu_pl.core.vectors import Combination, Vector, add_, copy_, norm, scale_

Back = Callable[[int], Combination]
"""The displacement of ascent t of an iteration, from 0."""
GOLDEN = 0.6180339887498949
"""By so much of the whole a place moves on, so that all places lie evenly."""


def share(t: int) -> float:
    """s_t, the share of the way back at which ascent ``t`` of the run, from 0, takes its gradient.

    >>> [round(share(t), 2) for t in range(5)]
    [0.5, 0.12, 0.74, 0.35, 0.97]
    """
    return (GOLDEN * t + 0.5) % 1.0


def to_unit_(x: Vector) -> bool:
    """Scale a vector in place to a root mean square of 1 over its entries; whether it has a length at all.

    >>> u = [torch.tensor([3.0, 0.0]), torch.tensor([[0.0, 4.0]])]
    >>> to_unit_(u), u
    (True, [tensor([1.2000, 0.0000]), tensor([[0.0000, 1.6000]])])
    """
    size = norm(x) if x else 0.0
    if size > 0:
        scale_(x, math.sqrt(sum(a.numel() for a in x)) / size)
    return size > 0


@contextmanager
def displaced(parameters: Sequence[Tensor], displacement: Combination) -> Iterator[None]:
    """A context with parameters moved by ``displacement``; they return bit for bit, also when it raises.

    It serves any engine; that of differences nests contexts of its own within, which keep one copy for all of them.
    """
    origin = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        add_(parameters, displacement)
    try:
        yield
    finally:
        with torch.no_grad():
            copy_(parameters, origin)
