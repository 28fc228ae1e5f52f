"""A part of OFMU that is a control of configs/benchmarks/reach.yaml.

PYTHONPATH=scripts python -m ofmu_pl benchmark --config configs/benchmarks/reach.yaml --trust reach_controls
"""

from dataclasses import replace

import torch

from ofmu_pl.core.algorithm import OuterIteration
from ofmu_pl.core.vectors import Vector
from ofmu_pl.modules.reaching import Reach
from ofmu_pl.modules.upper_level import Iteration


class RandomReach(Reach):
    """``Reach`` with one random direction for the whole run in the place of the ascent's running mean.

    No loss falls along it, so give a ``length``, and no ``drop``.
    """

    def iterate(self, given: Iteration) -> tuple[OuterIteration, dict[str, float]]:
        """Both loops, with the ascents' gradients taken at a random place."""

        def drawn() -> Vector:
            draws = torch.Generator().manual_seed(0)
            return [torch.randn(x.shape, generator=draws).to(x) for x in given.mean()]

        return super().iterate(replace(given, mean=drawn))
