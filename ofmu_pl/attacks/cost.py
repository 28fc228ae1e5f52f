"""What an attack takes, in the kinds of work that can be counted before it is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttackCost:
    """What an attack takes on one model.

    Attributes:
        gradients: Number of gradients of a batch's loss.
        batch_size: Number of rows of such a batch.
        passes: Number of batches, of the data's ``batch_size`` at most, that the model reads without a gradient.
        tokens: Number of tokens that it says, if no answer ends before it must.

    Example:
        >>> AttackCost(passes=2) + AttackCost(gradients=60, batch_size=8)
        AttackCost(gradients=60, batch_size=8, passes=2, tokens=0)
    """

    gradients: int = 0
    batch_size: int = 0
    passes: int = 0
    tokens: int = 0

    def __add__(self, other: AttackCost) -> AttackCost:
        return AttackCost(
            self.gradients + other.gradients,
            max(self.batch_size, other.batch_size),
            self.passes + other.passes,
            self.tokens + other.tokens,
        )
