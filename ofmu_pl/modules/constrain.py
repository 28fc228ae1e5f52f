"""A constraint on the forget side: rows are forgotten to a level, and no further."""

from __future__ import annotations

from ofmu_pl.support.errors import check_range


class SAUL:
    """``L <= level`` for the forget term's loss L, by a multiplier m that weighs the term (Choi et al. 2026, SAUL).

    ``m <- max(0, m + step (L - level))``, from 0, before each step: the weight grows while too little is forgotten, and
    fades to nothing beyond the level, past which the loss goes meanwhile. L is the batch's, where its gradient is
    taken. Simplified: the paper's augmented Lagrangian (section 4.1) around any forget term, with ``sam_rho`` its
    sharpness on the forget side; that on the retain side and an optimizer for each side are left out.

    Args:
        level: Largest forget loss (authors, TOFU's forget01: answers' losses of 10 nats, which is -10 of GradDiff).
        step: Step of the multiplier (authors: 1e-3).

    Example:
        >>> multiplier = SAUL(level=-10.0, step=0.5)
        >>> [multiplier.update(loss) for loss in (-2.0, -6.0, -20.0, -20.0)]
        [4.0, 6.0, 1.0, 0.0]
    """

    in_words = "Once a row was forgotten to a fixed level, it was left alone."

    def __init__(self, level: float, step: float = 1e-3) -> None:
        check_range(0, above=True, step=step)
        self.level, self.step, self.multiplier = level, step, 0.0

    def update(self, loss: float) -> float:
        """Move the multiplier by a batch's forget loss, and return it."""
        self.multiplier = max(0.0, self.multiplier + self.step * (loss - self.level))
        return self.multiplier
