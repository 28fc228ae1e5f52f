"""SCRUB: away from the frozen model on forget batches, towards it on retain batches."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ofmu_pl.losses import kl, sample_mean, token_nll
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError


class SCRUB(TwoTerms):
    """``-gamma KL(p_0 || p) on forget + alpha (KL(p_0 || p) + ce L_r) on retain`` (Kurmanji et al. 2023).

    The forget term runs during the first ``max_epochs`` passes over the forget set only. Both terms share an
    iteration (in published code whole passes of one alternate with the other's), and the divergence has temperature 1.

    Args:
        ce: Weight of the labels' cross-entropy beside the divergence on retain images.
        max_epochs: Number of passes over the forget set with the forget term.
        gamma: Weight of the forget term.
        alpha: Weight of the retain term.
        kwargs: See ``TwoTerms``; the retain loss is this class's own.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> SCRUB(SmallCNN(), max_epochs=1).streams
        ('forget', 'retain')
    """

    in_words = (
        "The model was pushed away from what it said of the forgotten rows before, and held to what it said "
        "of rows that must stay."
    )

    def __init__(
        self,
        network: Network,
        ce: float = 1.0,
        max_epochs: int = 2,
        gamma: float = 1.0,
        alpha: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(network, gamma, alpha, **kwargs)
        if not alpha or self.retain_loss != "nll":
            raise UserError("SCRUB has a retain loss of its own: set alpha above 0 and leave retain_loss out.")
        self.ce, self.max_epochs = ce, max_epochs

    @property
    def frozen_in_forget_term(self) -> bool:
        """Until ``max_epochs`` are over."""
        return bool(self.run.step <= self.max_epochs * self.run.data.iterations_per_epoch)

    @property
    def frozen_passes(self) -> int:
        """The retain term runs the frozen model always, the forget term as long as it pushes."""
        return 1 + self.frozen_in_forget_term

    def forget_losses(self, part: Batch) -> Tensor:
        """Minus the divergences, (b,), or zeros after ``max_epochs``."""
        if not self.frozen_in_forget_term:
            return 0.0 * self.recipe.sample_losses(self.trained, part)
        goal = self._goal(part)
        return -kl(*self.recipe.logits(self.trained, part), goal)

    def retain_losses(self, part: Batch) -> Tensor:
        """Divergences plus cross-entropies, (b,), of one pass of the trained model."""
        goal = self._goal(part)
        logits, labels = self.recipe.logits(self.trained, part)
        return kl(logits, labels, goal) + self.ce * sample_mean(token_nll(logits, labels), labels)

    def _goal(self, part: Batch) -> Tensor:
        """What the frozen model says, (b, S, V)."""
        with self.frozen() as teacher:
            return self.recipe.logits(teacher, part)[0]
