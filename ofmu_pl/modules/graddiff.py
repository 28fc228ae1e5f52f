"""Gradient ascent on the forget rows, alone or against a retain term: plain, or token by token (WGA, SatImp)."""

from functools import partial
from typing import Any

from torch import Tensor

from ofmu_pl.losses import weighted_ascent
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network


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


class WeightedAscent(TwoTerms):
    """Ascent with token weights ``p^beta_1 (1 - p)^beta_2``, constant in the gradient.

    WGA (Wang et al. 2025): beta_1 = 1, beta_2 = 0. SatImp (Yang et al. 2025): 5 and 1.

    Args:
        network: Recipe of the network that shall forget.
        beta_1: Power of the token's probability, which weighs known tokens more.
        beta_2: Power of its complement, which weighs certain tokens less.
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> satimp = WeightedAscent(CausalLM("gpt2"), beta_1=5, beta_2=1)
        >>> satimp.streams
        ('forget', 'retain')
    """

    in_words = "The model was trained to do badly on the forgotten answers, word by word, with a weight for each word."

    def __init__(self, network: Network, beta_1: float = 1.0, beta_2: float = 0.0, **kwargs: Any) -> None:
        super().__init__(network, **kwargs)
        self.beta_1, self.beta_2 = beta_1, beta_2

    def forget_losses(self, part: Batch) -> Tensor:
        """``-mean_t w_t l_t``."""
        said, targets = self.recipe.predict(self.trained, part)
        return said.mean(partial(weighted_ascent, beta_1=self.beta_1, beta_2=self.beta_2), targets)
