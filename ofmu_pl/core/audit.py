"""Compares an engine with an independent one on the same losses: are the derivatives in use right?"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.objective import Phi, outer_gradient
from ofmu_pl.core.vectors import combine, dot, norm


def audit(
    engine: Engine, reference: Engine, forget: Loss, retain: Loss, beta: float, floor: float = 0.0
) -> dict[str, float]:
    """Cosine and relative error of the parts of grad F that hold second and third derivatives.

    ``|x - y| / |y|`` and ``<x, y> / (|x||y|)`` with x from ``engine`` and y from ``reference``, for the decorrelation
    part ``-beta (H_f u_f + H_r u_r)`` of grad Phi and for ``Hess(Phi) grad Phi`` (rho = 1/2).

    Args:
        engine: The engine in use.
        reference: An engine of another kind on the same parameters.
        forget: L_f as terms; the cost is about 50 gradients of it, so pass a small one.
        retain: L_r as terms.
        beta: Weight of the similarity.
        floor: Floor of the norms inside the similarity.

    Returns:
        ``audit/decorrelation_cosine``, ``audit/decorrelation_error``, and the same of ``penalty``.
    """

    def parts(e: Engine) -> dict[str, Sequence[Tensor]]:
        return {
            "decorrelation": Phi(e, forget, retain, beta, floor).decorrelation(),
            "penalty": outer_gradient(e, forget, retain, 0.5, beta, floor).penalty,
        }

    result = {}
    ours, theirs = parts(engine), parts(reference)
    for name, y in theirs.items():
        x = ours[name]
        size = norm(x) * norm(y)
        result[f"audit/{name}_cosine"] = dot(x, y) / size if size else float(norm(x) == norm(y))
        result[f"audit/{name}_error"] = norm(combine([(1.0, x), (-1.0, y)])) / norm(y) if norm(y) else norm(x)
    return result
