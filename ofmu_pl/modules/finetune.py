"""Training on one split: makes the target (``full``) and the retrained model (``retain``); L1Sparse has a penalty."""

from typing import Any, Literal

import torch

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError


class FineTune(UnlearningModule):
    """Minimises the mean loss of one split.

    Args:
        network: Recipe of the network to train.
        split: ``full`` for the target, ``retain`` for the retrained model.
        from_target: Whether the network is the target, so that this is the baseline Finetune, evaluated like every
            method.
        kwargs: See ``UnlearningModule``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> retrained = FineTune(CausalLM("gpt2"), split="retain")
        >>> retrained.streams, retrained.unlearns
        (('retain',), False)
    """

    in_words = "The model was trained only on rows that must stay, in the hope that it forgets the others by itself."

    def __init__(
        self, network: Network, split: Literal["full", "retain"] = "full", from_target: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(network, **kwargs)
        if from_target and split != "retain":
            raise UserError("Finetune forgets by seeing the retain rows alone: set model.split retain too.")
        self.split, self.unlearns = split, from_target

    @property
    def streams(self) -> tuple[str, ...]:
        """The split that is trained on."""
        return (self.split,)

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """The gradient of the batch's mean loss."""
        (part,) = batch[self.split]
        with self.recipe.statistics(self.trained, self.split):
            expansion = self.gradient_engine().expand(self.loss(part), order=1)
        self.charge(1.0)
        return expansion.gradient, {"L": expansion.value}


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
