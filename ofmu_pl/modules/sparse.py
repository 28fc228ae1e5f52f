"""Fine-tuning on the retain images under a falling l1 penalty."""

from __future__ import annotations

from typing import Any

import torch

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector
from ofmu_pl.modules.finetune import FineTune
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError


class L1Sparse(FineTune):
    """``L_r + a_k |theta|_1`` with ``a_k`` falling linearly from ``a`` to 0 over the run (Jia et al. 2023).

    Args:
        a: First weight of the penalty (a third party's script for CIFAR-10: 1e-4).
        kwargs: See ``FineTune``.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> method = L1Sparse(SmallCNN(), a=1e-4)
        >>> method.streams, method.unlearns
        (('retain',), True)
    """

    in_words = (
        "The model was trained on rows that must stay, while all of its weights were drawn towards zero so "
        "that what is not needed fades."
    )

    def __init__(self, network: Network, a: float = 1e-4, **kwargs: Any) -> None:
        super().__init__(network, split="retain", from_target=True, **kwargs)
        self.a = a

    def on_train_start(self) -> None:
        """Refuse a run without an end, at which the penalty must reach 0."""
        if self.run.steps <= 0:
            raise UserError("L1Sparse's penalty falls to 0 at the run's end: set trainer.max_steps.")

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """The gradient of loss and penalty, with sign(0) = 0."""
        gradient, scalars = super().iterate(batch)
        scalars["a"] = self.a * (1 - (self.run.step - 1) / self.run.steps)
        for g, p in zip(gradient, trainable(self.trained), strict=True):
            g.add_(torch.sign(p.detach()), alpha=scalars["a"])
        return gradient, scalars
