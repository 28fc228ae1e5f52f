"""Selective synaptic dampening: the weights that matter most to forget rows, beside all rows, are shrunk once."""

from __future__ import annotations

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, zeros_like
from ofmu_pl.modules.one_shot import OneShot, whole_split
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError, check_range


class SSD(OneShot):
    """``theta_i min(dampening I_i / J_i, 1)`` where ``J_i > alpha I_i``, once (Foster et al. 2024, arXiv 2308.07707).

    J is the importance of the weights for forget rows, I that for all rows, forget and retain: the mean over groups of
    rows of the squared gradient of a group's mean loss. Since I has a share of J in it, ``J_i / I_i`` is at most the
    number of all groups by that of forget groups; a larger ``alpha`` is refused, and so are adapters (UserError).

    Faithful: as the authors' code (if-loops/selective-synaptic-dampening cdfdc0e, ssd.py), which squares the mean
    gradient of a batch of 128 (``group_size``). The paper's formula is the Fisher information, of single rows
    (``group_size: 1``). Groups do not mix forget with retain rows; images are not augmented.

    Args:
        network: Recipe of the network that shall forget.
        alpha: How much more a weight must matter to forget rows to be shrunk (authors' ResNet-18: 10).
        dampening: The paper's lambda (authors: 1): less shrinks more.
        group_size: Rows whose mean gradient is squared.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> SSD(SmallCNN(), alpha=5.0).alpha
        5.0
    """

    in_words = (
        "The weights that mattered more to the forgotten rows than to all rows were shrunk once; nothing was trained."
    )

    def __init__(self, network: Network, alpha: float = 10.0, dampening: float = 1.0, group_size: int = 128) -> None:
        super().__init__(network)
        check_range(0, alpha=alpha, dampening=dampening)
        check_range(1, whole=True, group_size=group_size)
        if network.adds_adapters:
            raise UserError("SSD shrinks weights that have learned, and adapters are new: leave out network.lora.")
        self.alpha, self.dampening, self.group_size = alpha, dampening, group_size

    def displacement(self) -> tuple[Vector, dict[str, float]]:
        """The shrinkage, and the share of the weights that are chosen."""
        forget, retain = (whole_split(self, name, self.group_size) for name in ("forget", "retain"))
        groups = len(forget) + len(retain)
        if self.run.checks_itself and self.alpha * len(forget) >= groups:
            raise UserError(
                f"No weight matters {self.alpha:g} times as much to forget rows, {len(forget)} of {groups} groups, as "
                f"to all rows: set model.alpha below {groups / len(forget):.3g}."
            )
        own, others = self.squares(forget), self.squares(retain)
        found, chosen = [], 0
        for theta, f, r in zip(trainable(self.trained), own, others, strict=True):
            importance, everywhere = f / len(forget), (f + r) / groups
            where = importance > self.alpha * everywhere
            factor = (self.dampening * everywhere / importance).clamp(max=1)
            found.append(theta.detach() * (factor - 1).where(where, 0))
            chosen += int(where.sum())
        return found, {"chosen": chosen / sum(x.numel() for x in found)}

    def squares(self, groups: list[Batch]) -> Vector:
        """The sum over groups of the squared gradient of their mean loss."""
        parameters, engine = trainable(self.trained), self.gradient_engine()
        total = zeros_like(parameters)
        for group in groups:
            gradient = zeros_like(parameters)
            engine.add_gradient(gradient, 1.0, self.loss(group))
            for x, g in zip(total, gradient, strict=True):
                x.addcmul_(g, g)
        self.charge(1.0, sum(len(group["labels"]) for group in groups))
        return total
