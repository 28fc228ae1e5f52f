"""The run's own numbers, iteration by iteration, for figures."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

NAMES = ("L_f", "L_r", "Sim", "grad_Phi", "grad_L_r", "rho", "penalty", "curvature", "gradient_norm")
"""What is kept, of what a method logs; ``gradient_norm`` is that of the whole descent direction before it is clipped
(of OFMU |grad F|, as far as ``penalty_clip`` and ``concave_only`` are off or idle)."""
LONGEST = 1000
"""Iterations; the rest of a longer run is in its event file."""


def record(curves: dict[str, list[float]], logged: Mapping[str, Tensor]) -> None:
    """Add an iteration's values to the curves; what is not computed in every one keeps its last value until it is.

    Args:
        curves: Values of the iterations before, by name.
        logged: What the method logged in this one.
    """
    for name in NAMES:
        if name in logged:
            values = curves.setdefault(name, [])
            if len(values) < LONGEST:
                values.append(float(logged[name]))
