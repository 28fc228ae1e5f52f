"""PDU: forgetting under the constraint that the retain loss stays below a bound, by primal and dual steps."""

from typing import Any

from torch import Tensor

from ofmu_pl.losses import logit_margin
from ofmu_pl.modules.base import Checkpoint
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import check_range


class PDU(TwoTerms):
    """Flattens the logits of forget answers subject to ``L_r <= epsilon`` (Entesari et al. 2025).

    Simplified: in open-unlearning's tuned run the price stays at its first value for 5 of 10 epochs; here it moves at
    once.

    ``alpha_{k+1} = max(0, alpha_k + dual_step (L_r - epsilon))``: the retain weight is the constraint's price.

    Args:
        network: Recipe of the network that shall forget.
        epsilon: Largest retain loss, nats (open-unlearning, 1B on TOFU: 0.3).
        alpha: First value of the price (there: 100).
        dual_step: Step of the price (there: 5).
        kwargs: See ``TwoTerms``.

    Example:
        A retain loss of 0.5 breaks the constraint by 0.2, and its price rises.

        >>> from ofmu_pl import CausalLM
        >>> method = PDU(CausalLM("gpt2"), epsilon=0.3, alpha=100, dual_step=5)
        >>> method.after_retain(0.5)
        >>> method.alpha
        101.0
    """

    in_words = (
        "The model was trained to find all words equally likely where it should have answered the forgotten "
        "rows. Rows that must stay held it back whenever it became worse on them than allowed."
    )
    retains = True  # a price of 0 rises as soon as the constraint is broken

    def __init__(
        self, network: Network, epsilon: float = 0.3, alpha: float = 100.0, dual_step: float = 5.0, **kwargs: Any
    ) -> None:
        super().__init__(network, alpha=alpha, **kwargs)
        check_range(0, epsilon=epsilon, dual_step=dual_step)
        self.epsilon, self.dual_step = epsilon, dual_step

    def forget_losses(self, part: Batch) -> Tensor:
        """``mean_t (max logit - mean logit)^2``."""
        said, targets = self.recipe.predict(self.trained, part)
        return said.mean(logit_margin, targets)

    def after_retain(self, loss: float) -> None:
        """Move the price by dual ascent on the batch's violation."""
        self.alpha = max(0.0, self.alpha + self.dual_step * (loss - self.epsilon))

    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add the price to a checkpoint."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["pdu"] = {"price": self.alpha}

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Restore the price from a checkpoint."""
        super().go_on_from(checkpoint)
        self.alpha = checkpoint["pdu"]["price"]
