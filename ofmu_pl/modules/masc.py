"""MASC: true tokens lose their lead over their rivals, and the run ends by itself."""

import math
from functools import partial
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from ofmu_pl.data.sampler import evenly
from ofmu_pl.losses import margin_hinge, margins, sample_mean
from ofmu_pl.modules.reader import LOOKED_AT, ROWS
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import check_range


class MASC(TwoTerms):
    """Margin self-correction (Di Gennaro et al. 2026, arXiv 2606.02920): no retain rows, and an end of its own.

    A token's margin is its log-odds against its likeliest rivals; what is above ``ln(rho / (1 - rho)) - buffer`` is
    lowered. Every tenth iteration up to 64 forget rows are scored. The run ends where the share of their tokens whose
    probability among the rivals is above ``rho`` is at most ``stop_share``, on average over rows.

    Simplified: in the authors' code (FedericoDiGennaro/Fast-LLM-Unlearning-MarginSelfCorrection 6b94838) rows of 64
    tokens and more are pushed from a random place on, and two smaller looks come before the end.

    Args:
        network: Recipe of the network that shall forget.
        rivals: Number of rivals, by the model of now.
        rho: Probability among the rivals that a true token may keep.
        buffer: Distance below its bound at which a margin is left alone, in nats.
        stop_share: Share of tokens above ``rho`` at which the run ends (authors, TOFU: 0.475); ``null``: it does not.
        alpha: Weight of the retain term (authors, TOFU: 0).
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> round(MASC(CausalLM("gpt2"), rho=0.7).bound, 4)
        0.8473
    """

    in_words = "The model was trained to make right words of forgotten answers hardly likelier than the next best ones."

    def __init__(
        self,
        network: Network,
        rivals: int = 10,
        rho: float = 0.7,
        buffer: float = 0.25,
        stop_share: float | None = 0.475,
        alpha: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(network, alpha=alpha, **kwargs)
        check_range(0, 0.999, above=True, rho=rho)
        check_range(0, 1, stop_share=stop_share)
        check_range(0, above=True, buffer=buffer)
        check_range(1, whole=True, rivals=rivals)
        self.rivals, self.buffer, self.stop_share = rivals, buffer, stop_share
        self.bound = math.log(rho / (1 - rho))

    def forget_losses(self, part: Batch) -> Tensor:
        """``mean_t max(0, margin - bound + buffer) / buffer``."""
        said, targets = self.recipe.predict(self.trained, part)
        hinge = partial(margin_hinge, rivals=self.rivals, bound=self.bound, buffer=self.buffer)
        return said.mean(hinge, targets)

    def reached(self) -> tuple[bool, dict[str, float]]:
        """End the run where few enough margins are above their bound; compare as every method does."""
        reached, seen = super().reached()
        if self.stop_share is None:
            return reached, seen
        rows, shares = evenly(range(len(self.run.data.splits["forget"])), LOOKED_AT), []
        with torch.no_grad(), self.scoring():
            for part in torch.tensor(rows).split(min(ROWS, self.micro_batch_size or ROWS)):
                said, targets = self.read(self.run.data.collate("forget", part.tolist(), 0))
                above = said.values(partial(margins, rivals=self.rivals), targets) > self.bound
                shares += sample_mean(above.float(), targets).tolist()
        share = self.run.ranks.first(sum(shares) / len(shares))  # ranks end together
        if share <= self.stop_share:
            rank_zero_info(
                f"Stopping after {self.run.step} iterations: {share:.1%} of forget tokens are above model.rho."
            )
            self.run.stop("few enough forgotten tokens still lead their rivals")
        return reached, {**seen, "share_above": share}
