"""JensUn: a forget term that is bounded, towards one fixed answer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ofmu_pl.losses import IGNORED, js_to_token
from ofmu_pl.modules.two_terms import RetainLoss, TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError


class JensUn(TwoTerms):
    """Jensen-Shannon divergence to one fixed answer, and on retain rows to the frozen model (Singh et al. 2025).

    The t-th token of every forget answer is to become the t-th of ``answer``, which begins again where it ends; what is
    read are still the true tokens. Both terms are at most ln 2. Faithful (arXiv 2509.02820; nmndeep/JensUn-Unlearning
    9d0cfd5), but for means over rows, not tokens, and without the code's floor of 1e-9 under probabilities.

    Args:
        network: Recipe of the network that shall forget.
        answer: What forget rows are to be answered with (authors: No idea).
        retain_loss: See ``TwoTerms`` (authors: ``js``).
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> JensUn(CausalLM("gpt2")).streams
        ('forget', 'retain')
    """

    in_words = "The model was trained to give one fixed answer to all forgotten rows, and to answer others as before."
    modality = "text"

    def __init__(
        self, network: Network, answer: str = "No idea", retain_loss: RetainLoss = "js", **kwargs: Any
    ) -> None:
        super().__init__(network, retain_loss=retain_loss, **kwargs)
        self.answer = answer

    def forget_losses(self, part: Batch) -> Tensor:
        """Divergences from the fixed answer."""
        logits, targets = self.recipe.logits(self.trained, part)
        tokens = self.run.data.tokenizer.encode(self.answer, add_special_tokens=False)
        if not tokens:
            raise UserError(f"model.answer '{self.answer}' has no token: give words to answer forget rows with.")
        place = (targets != IGNORED).cumsum(1) - 1
        wanted = torch.tensor(tokens, device=targets.device)[place % len(tokens)]
        return js_to_token(logits, wanted.where(targets != IGNORED, IGNORED))
