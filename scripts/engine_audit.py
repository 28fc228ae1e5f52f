"""Compares an engine with an independent one on the same losses: are the derivatives in use right?"""

from dataclasses import replace

from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.objective import Phi, outer_gradient
from ofmu_pl.core.safeguards import AS_PRINTED
from ofmu_pl.core.vectors import Vector, combine, dot, norm


def parts(engine: Engine, forget: Loss, retain: Loss, beta: float, floor: float = 0.0) -> dict[str, Vector]:
    """The parts of grad F that hold second and third derivatives, by name.

    ``decorrelation``, ``-beta (H_f u_f + H_r u_r)`` of grad Phi, and ``penalty``, ``Hess(Phi) grad Phi`` (rho = 1/2).

    Args:
        engine: Takes the derivatives.
        forget: L_f as terms; the cost is about 25 gradients of it, so pass a small one.
        retain: L_r as terms.
        beta: Weight of the similarity.
        floor: Floor of the norms inside the similarity.
    """
    floored = replace(AS_PRINTED, norm_floor=floor)
    return {
        "decorrelation": Phi(engine, forget, retain, beta, floor).decorrelation(),
        "penalty": outer_gradient(engine, forget, retain, 0.5, beta, floored).penalty,
    }


def compare(ours: dict[str, Vector], theirs: dict[str, Vector]) -> dict[str, float]:
    """``PART_cosine``, <x, y> / (|x||y|), and ``PART_error``, |x - y| / |y|, of each part x of ours and y of theirs."""
    result = {}
    for name, y in theirs.items():
        x = ours[name]
        size = norm(x) * norm(y)
        result[f"{name}_cosine"] = dot(x, y) / size if size else float(norm(x) == norm(y))
        result[f"{name}_error"] = norm(combine([(1.0, x), (-1.0, y)])) / norm(y) if norm(y) else norm(x)
    return result
