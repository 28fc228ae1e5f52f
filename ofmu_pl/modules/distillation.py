"""Forgetting as imitation of a distribution without the true token: UNDIAL and CE-U."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ofmu_pl.losses import IGNORED, ce_u, undial
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network


class UNDIAL(TwoTerms):
    """Imitates the frozen model with the true token's logit lowered (Dong et al. 2024).

    Args:
        network: Recipe of the network that shall forget.
        beta: How much the true token's logit is lowered (authors: 10).
        alpha: Weight of the retain term (open-unlearning: 0).
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> UNDIAL(CausalLM("gpt2"), beta=10).streams
        ('forget',)
    """

    in_words = (
        "The model was trained to imitate itself as it was, with the right words of the forgotten answers "
        "made less likely."
    )
    frozen_in_forget_term = True

    def __init__(self, network: Network, beta: float = 10.0, alpha: float = 0.0, **kwargs: Any) -> None:
        super().__init__(network, alpha=alpha, **kwargs)
        self.beta = beta

    def forget_losses(self, part: Batch) -> Tensor:
        """Cross-entropy to the frozen model's lowered distribution."""
        with self.frozen() as reference:
            goal = self.recipe.logits(reference, part)[0]
        return undial(*self.recipe.logits(self.trained, part), goal, self.beta)


class CEU(TwoTerms):
    """Imitates its own distribution without the true token (CE-U, Yang 2025).

    Args:
        network: Recipe of the network that shall forget.
        skip: Number of labelled tokens at the start that are left alone (authors: 1); a document's first token, which
            nothing predicts, counts among them as in open-unlearning.
        alpha: Weight of the retain term (authors: 0).
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> CEU(CausalLM("gpt2"), alpha=1.0).streams
        ('forget', 'retain')
    """

    in_words = "The model was trained to imitate itself with the right words of the forgotten answers taken out."

    def __init__(self, network: Network, skip: int = 1, alpha: float = 0.0, **kwargs: Any) -> None:
        super().__init__(network, alpha=alpha, **kwargs)
        self.skip = skip

    def forget_losses(self, part: Batch) -> Tensor:
        """Cross-entropy to the network's own distribution without the true token, taken as constant."""
        logits, targets = self.recipe.logits(self.trained, part)
        labelled, predicted = ((x != IGNORED).flatten(1).sum(1) for x in (part["labels"], targets))
        return ce_u(logits, targets, self.skip - labelled + predicted)
