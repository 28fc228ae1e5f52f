"""Gradient ascent on the forget rows, alone or against a retain term."""

from __future__ import annotations

from torch import Tensor

from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch


class GradDiff(TwoTerms):
    """Descends ``-gamma L_f + alpha L_r``; ``alpha: 0`` is gradient ascent, ``retain_loss: kl`` regularises by KL.

    The forget loss has no bound: it can grow for ever, at the cost of everything else.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> GradDiff(CausalLM("gpt2"), retain_loss="kl").streams
        ('forget', 'retain')
        >>> GradDiff(CausalLM("gpt2"), alpha=0).streams
        ('forget',)
    """

    in_words = (
        "The model was trained to do badly on the forgotten rows and, where that was asked for, to do well on "
        "rows that must stay."
    )

    def forget_losses(self, part: Batch) -> Tensor:
        """Minus the mean losses."""
        return -self.recipe.sample_losses(self.trained, part)
