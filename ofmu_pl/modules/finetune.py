"""Plain training on one split: makes the target (``full``) and the retrained model (``retain``)."""

from __future__ import annotations

from typing import Any, Literal

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

    in_words = "The model was trained on rows that must stay alone, in the hope that it forgets the others by itself."

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
