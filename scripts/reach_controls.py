"""Parts of OFMU that are controls of configs/benchmarks/reach.yaml.

PYTHONPATH=scripts python -m ofmu_pl benchmark --config configs/benchmarks/reach.yaml --trust reach_controls
"""

from dataclasses import replace

import torch
from torch import Tensor

from ofmu_pl.core.algorithm import OuterIteration
from ofmu_pl.core.vectors import Vector
from ofmu_pl.losses import npo
from ofmu_pl.modules.base import Checkpoint, UnlearningModule
from ofmu_pl.modules.lower_level import LowerLevel
from ofmu_pl.modules.reaching import Reach
from ofmu_pl.modules.reference_scores import reference_nll
from ofmu_pl.modules.upper_level import Iteration


class NPOLevel(LowerLevel):
    """Minus ``(2/beta) log(1 + (p/p_ref)^beta)`` of a forget answer, which NPO lowers and an ascent raises.

    Args:
        beta: Inverse temperature, as in ``NPO``.
    """

    def __init__(self, beta: float = 0.1) -> None:
        super().__init__()
        self.beta = beta

    def begin(self, method: UnlearningModule, iterations: int) -> None:
        """Score the forget answers by the model that is to forget, or read the scores of a checkpoint."""
        super().begin(method, iterations)
        kept = self._kept.get("reference_nll")
        if kept is None:
            kept = reference_nll(method.trained, method.recipe, method.run.data, "forget", method.run.precision)
        self.reference_nll = kept

    def values(self, nll: Tensor, targets: Tensor, ids: Tensor) -> Tensor:
        """Minus NPO's loss of each row, (b,)."""
        reference = self.reference_nll[ids.cpu()].to(nll.device, torch.promote_types(torch.float32, nll.dtype))
        return -npo(nll.sum(1), reference, self.beta)

    def state_dict(self) -> Checkpoint:
        """With the scores, since a resumed run's model has moved."""
        return {**super().state_dict(), "reference_nll": self.reference_nll}


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
