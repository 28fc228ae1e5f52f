"""RMU: hidden states of forget rows are sent to a random place (Li et al. 2024, WMDP)."""

from typing import Any

import torch
from torch import Tensor

from ofmu_pl.losses import IGNORED, hidden_distance
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.networks.layers import hidden_states, share_up_to


class RMU(TwoTerms):
    """``|h(forget) - c u|^2 + alpha |h(retain) - h_frozen(retain)|^2`` at one layer, over labelled positions.

    u is uniform on [0, 1)^d, normalised, and always the same, so that a resumed run keeps it. The
    layers above never run. Give the network ``trainable`` to train few layers only, as the authors do.

    Args:
        network: Recipe of the network that shall forget.
        layer: Name of the module whose output is steered (authors, Zephyr-7B: model.layers.7).
        coefficient: c, the length of the vector steered to (authors: 6.5; open-unlearning on TOFU: 2).
        alpha: Weight of the retain term (authors: 1200; open-unlearning: 1).
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> method = RMU(CausalLM("gpt2"), layer="transformer.h.5", alpha=100)
        >>> method.streams, method.retain_loss
        (('forget', 'retain'), 'embedding')
    """

    in_words = (
        "What the model computes inside for forgotten rows was steered towards a meaningless direction. For "
        "rows that must stay it was held to what it was before."
    )
    modality = "text"

    def __init__(
        self,
        network: Network,
        layer: str = "model.layers.7",
        coefficient: float = 6.5,
        alpha: float = 1200.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retain_loss", "embedding")
        super().__init__(network, alpha=alpha, layer=layer, **kwargs)
        self.coefficient = coefficient

    @property
    def forget_work(self) -> float:
        """That of the layers that run."""
        return share_up_to(self.trained, str(self.layer))

    def forget_losses(self, part: Batch) -> Tensor:
        """Squared distance to ``c u``, averaged over dimensions and labelled positions."""
        hidden = hidden_states(self.trained, part, str(self.layer))
        u = torch.rand(hidden.shape[2], generator=torch.Generator().manual_seed(0)).to(hidden.device)
        return hidden_distance(hidden, self.coefficient * u / u.norm(), part["labels"] != IGNORED)
