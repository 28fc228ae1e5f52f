"""Forgetting by a made-up distribution: the true token lowered (UNDIAL) or left out (CE-U), or one answer (JensUn)."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ofmu_pl.losses import IGNORED, after_first, ce_u, js_to_token, undial
from ofmu_pl.modules.two_terms import RetainLoss, TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError


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

    in_words = "The model was trained to imitate itself with the right words of the forgotten answers made less likely."
    frozen_in_forget_term = True

    def __init__(self, network: Network, beta: float = 10.0, alpha: float = 0.0, **kwargs: Any) -> None:
        super().__init__(network, alpha=alpha, **kwargs)
        self.beta = beta

    def forget_losses(self, part: Batch) -> Tensor:
        """Cross-entropy to the frozen model's lowered distribution."""
        said, targets = self.recipe.predict(self.trained, part)
        return said.mean(partial(undial, beta=self.beta), targets, self.predict_frozen(part))


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
    modality = "text"

    def __init__(self, network: Network, skip: int = 1, alpha: float = 0.0, **kwargs: Any) -> None:
        super().__init__(network, alpha=alpha, **kwargs)
        self.skip = skip

    def forget_losses(self, part: Batch) -> Tensor:
        """Cross-entropy to the network's own distribution without the true token, taken as constant."""
        said, targets = self.recipe.predict(self.trained, part)
        documents = part["labels"][:, 1] != IGNORED  # nothing stands before their answer but a first token
        return said.mean(ce_u, after_first(targets, self.skip - documents.long()))


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
        said, targets = self.recipe.predict(self.trained, part)
        tokens = self.run.data.tokenizer.encode(self.answer, add_special_tokens=False)
        if not tokens:
            raise UserError(f"model.answer '{self.answer}' has no token: give words to answer forget rows with.")
        place = (targets != IGNORED).cumsum(1) - 1
        wanted = torch.tensor(tokens, device=targets.device)[place % len(tokens)]
        return said.mean(js_to_token, wanted.where(targets != IGNORED, IGNORED))
