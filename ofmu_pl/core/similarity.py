r"""Cosine similarity of two gradients and its derivatives, as coefficients of linear combinations.

With floored norms n_f = sqrt(|g_f|^2 + eps^2), n_r alike (the paper, section 3.1, has eps = 0):

    s   = <g_f, g_r> / (n_f n_r)
    u_f = ds/dg_f = g_r / (n_f n_r) - s g_f / n_f^2                    u_r symmetric
    w_f = d/dt u_f(g_f + t d_f, g_r + t d_r)  at t = 0                 w_r symmetric

Only inner products enter, so vectors of any size, device or sharding can stand behind it. The floor sits
*inside* the root: at a vanishing gradient everything here is finite (a floor outside gives 0/0), and
|u_f| <= 1/eps always.
"""

import math
from collections.abc import Sequence

from torch import Tensor

from ofmu_pl.core.vectors import Combination, dot


class Cosine:
    """Similarity ``value`` = s of two fixed gradients, with its first and second derivatives.

    Args:
        g_f: Gradient of the forget loss, one tensor per parameter.
        g_r: Gradient of the retain loss, of the same shapes.
        floor: eps, in units of a gradient norm; 0 is the paper's plain cosine.

    Raises:
        ZeroDivisionError: A gradient vanishes and ``floor`` is 0: the plain cosine does not exist there.

    Example:
        Two gradients at 45 degrees; along u_f = ds/dg_f the cosine grows.

        >>> import torch
        >>> similarity = Cosine([torch.tensor([3.0, 0.0])], [torch.tensor([1.0, 1.0])])
        >>> round(similarity.value, 4)
        0.7071
        >>> u_f, u_r = similarity.gradient()
        >>> [(round(factor, 4), vector[0].tolist()) for factor, vector in u_f]
        [(-0.0786, [3.0, 0.0]), (0.2357, [1.0, 1.0])]
    """

    def __init__(self, g_f: Sequence[Tensor], g_r: Sequence[Tensor], floor: float = 0.0) -> None:
        self.g_f, self.g_r = g_f, g_r
        self.norm_f, self.norm_r = math.sqrt(dot(g_f, g_f)), math.sqrt(dot(g_r, g_r))
        self.n_f, self.n_r = math.hypot(self.norm_f, floor), math.hypot(self.norm_r, floor)
        if self.n_f == 0 or self.n_r == 0:
            raise ZeroDivisionError("the cosine of a zero gradient does not exist; give the norms a floor")
        self.value = dot(g_f, g_r) / (self.n_f * self.n_r)

    def gradient(self) -> tuple[Combination, Combination]:
        """``(u_f, u_r)`` = derivatives of s by g_f and g_r, as combinations of (g_f, g_r)."""
        s, n_f, n_r = self.value, self.n_f, self.n_r
        u_f = [(-s / n_f**2, self.g_f), (1 / (n_f * n_r), self.g_r)]
        u_r = [(1 / (n_f * n_r), self.g_f), (-s / n_r**2, self.g_r)]
        return u_f, u_r

    def directional(self, d_f: Sequence[Tensor], d_r: Sequence[Tensor]) -> tuple[Combination, Combination]:
        """``(w_f, w_r)``: derivative of (u_f, u_r) along (d_f, d_r), as combinations of (g_f, g_r, d_f, d_r).

        The Jacobian of (u_f, u_r) is the Hessian of s, hence symmetric: this is also its transpose's product.
        """
        s, n_f, n_r = self.value, self.n_f, self.n_r
        e_f = dot(self.g_f, d_f) / n_f**2  # relative change of n_f along d_f
        e_r = dot(self.g_r, d_r) / n_r**2
        ds = (dot(self.g_r, d_f) + dot(self.g_f, d_r)) / (n_f * n_r) - s * (e_f + e_r)
        cross = 1 / (n_f * n_r)
        turn = -(e_f + e_r) * cross
        w_f = [
            ((2 * s * e_f - ds) / n_f**2, self.g_f),
            (turn, self.g_r),
            (-s / n_f**2, d_f),
            (cross, d_r),
        ]
        w_r = [
            (turn, self.g_f),
            ((2 * s * e_r - ds) / n_r**2, self.g_r),
            (cross, d_f),
            (-s / n_r**2, d_r),
        ]
        return w_f, w_r
