"""Conjugate gradients: solves a damped linear system by matrix-vector products alone."""

from collections.abc import Callable

from ofmu_pl.core.vectors import Vector, add_, dot, norm, zeros_like


def conjugate_gradient(
    product: Callable[[Vector], Vector], b: Vector, damping: float, iterations: int, tolerance: float
) -> tuple[Vector, float, int]:
    """Solve ``(A + damping) x = b`` by Hestenes and Stiefel's method from x = 0, where ``product`` maps v to A v.

    A is symmetric. The search ends at a relative residual of ``tolerance``, after so many iterations, or where
    A + damping is not positive along a direction. Returns the last x, its relative residual ``|b - (A + damping) x| /
    |b|``, and the number of products taken.
    """
    x, r = zeros_like(b), [t.clone() for t in b]
    p, rr, size = [t.clone() for t in r], dot(b, b), norm(b)
    done = 0
    while size and done < iterations and rr**0.5 > tolerance * size:
        a_p = product(p)
        add_(a_p, [(damping, p)])
        done += 1
        curvature = dot(p, a_p)
        if curvature <= 0:
            break
        step = rr / curvature
        add_(x, [(step, p)])
        add_(r, [(-step, a_p)])
        rr, before = dot(r, r), rr
        for q, t in zip(p, r, strict=True):
            q.mul_(rr / before).add_(t)
    return x, rr**0.5 / size if size else 0.0, done
