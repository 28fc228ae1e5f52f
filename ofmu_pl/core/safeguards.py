"""What keeps Algorithm 1 from diverging, beside the paper's own numbers."""

from dataclasses import dataclass

from ofmu_pl.support.errors import check_range


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
