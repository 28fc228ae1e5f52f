r"""The schedule of the penalty parameter: rho_{k+1} = min(gamma rho_k, cap), one value per outer iteration.

The paper (experimental set-up) has no cap; then gamma = 1.5 overflows float32 in about 220 iterations.
"""

from ofmu_pl.support.errors import UserError


class Penalty:
    """The current ``rho`` and the rule for the next one.

    Args:
        rho_0: First value, > 0 (paper: 0.3), or 0 to switch the penalty off.
        gamma: Growth factor, >= 1 (paper: between 1.5 and 2).
        cap: Largest value; ``None`` lets rho grow without bound, as printed.

    Example:
        >>> penalty = Penalty(rho_0=0.25, gamma=2, cap=0.75)
        >>> seen = []
        >>> for _ in range(3):
        ...     seen.append(penalty.rho)
        ...     penalty.update()
        >>> seen
        [0.25, 0.5, 0.75]
    """

    def __init__(self, rho_0: float = 0.3, gamma: float = 1.5, cap: float | None = None) -> None:
        if rho_0 < 0 or gamma < 1 or (cap is not None and cap < rho_0):
            raise UserError(
                f"The penalty schedule model.upper.rho_0 {rho_0}, model.upper.gamma {gamma}, model.safeguards.rho_max "
                f"{cap} is out of range: set rho_0 to 0 or more, gamma to 1 or more and rho_max to at least rho_0 (or "
                "null)."
            )
        self.rho, self.gamma, self.cap = rho_0, gamma, cap

    def update(self) -> None:
        """Move on by one outer iteration."""
        self.rho *= self.gamma
        if self.cap is not None:
            self.rho = min(self.rho, self.cap)
