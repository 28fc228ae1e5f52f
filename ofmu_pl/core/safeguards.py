r"""The schedule of the penalty parameter, and what keeps Algorithm 1 from diverging beside the paper's own numbers.

    rho_{k+1} = min(gamma rho_k, cap)                       one value an outer iteration

The paper (experimental set-up) has no cap; then gamma = 1.5 overflows float32 in about 220 iterations.
"""

from dataclasses import dataclass

from ofmu_pl.support.errors import UserError, check_range


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


@dataclass(frozen=True)
class Safeguards:
    """Bounds on the parts of an outer iteration; ``null`` and ``false`` leave the algorithm as printed.

    Args:
        rho_max: Cap of rho; as printed rho = 0.3 x 1.5^k passes 1e10 at k = 60.
        penalty_clip: Cap of the penalty's norm in multiples of |g_r|, for each iteration that the penalty counts for.
        norm_floor: eps in the similarity's norms sqrt(|g|^2 + eps^2): it stays finite where a gradient vanishes.
        inner_clip: Largest norm of an ascent direction.
        aligned_only: Leave the similarity out of Phi where s <= 0: there "decorrelate" would make gradients oppose.

    Example:
        >>> Safeguards(penalty_clip=0.5).floor
        0.0001
    """

    rho_max: float | None = 1.0
    penalty_clip: float | None = 0.3
    norm_floor: float | None = 1e-4
    inner_clip: float | None = 1.0
    aligned_only: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        check_range(0, penalty_clip=self.penalty_clip, norm_floor=self.norm_floor)
        check_range(0, above=True, inner_clip=self.inner_clip)

    @property
    def floor(self) -> float:
        """The floor of norms as a number; 0 is the paper's plain cosine."""
        return self.norm_floor or 0.0


AS_PRINTED = Safeguards(rho_max=None, penalty_clip=None, norm_floor=None, inner_clip=None, aligned_only=False)
"""No safeguard at all."""

SAFE = Safeguards()
"""The defaults."""
