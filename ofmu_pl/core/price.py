r"""The price of a constraint: a weight that rises as long as a loss is above its bound, and falls below it.

lambda_{k+1} = max(0, lambda_k + step (L_r - bound))            dual ascent on  L_r <= bound
"""

from __future__ import annotations

from ofmu_pl.support.errors import check_range


class Price:
    """Weight of the retain loss as the price of keeping it below a bound (the dual step of Entesari et al. 2025).

    Args:
        bound: Largest retain loss, in nats (open-unlearning's PDU, 1B on TOFU: 0.3).
        first: First value (there: 100).
        step: Step of the dual ascent (there: 5).

    Attributes:
        value: The present price.

    Raises:
        UserError: A number is negative.

    Example:
        A retain loss of 0.5 breaks the constraint by 0.2, and its price rises.

        >>> price = Price(bound=0.3, first=100, step=5)
        >>> price.move(0.5)
        >>> price.value
        101.0
    """

    def __init__(self, bound: float = 0.3, first: float = 100.0, step: float = 5.0) -> None:
        check_range(0, bound=bound, first=first, step=step)
        self.bound, self.step, self.value = bound, step, first

    def move(self, loss: float) -> None:
        """Take one step of dual ascent, by a batch's retain loss in nats."""
        self.value = max(0.0, self.value + self.step * (loss - self.bound))
