r"""Schedules of the penalty parameter rho: one value per outer iteration, with unit and cap.

    geometric    rho_{k+1} = gamma rho_k                                     (paper, experimental set-up)
    adaptive     rho_{k+1} = gamma rho_k if |grad Phi_k| > shrink |grad Phi_{k-1}|, else rho_k
                 (paper, appendix on Hessian-vector products: "adaptively based on the norm of grad Phi";
                 the rule itself is the classical one of penalty methods, the paper gives none)

Without a cap gamma = 1.5 an iteration overflows float32 in about 220 iterations.
"""

from __future__ import annotations

from typing import Literal

from ofmu_pl.support.errors import UserError


class Penalty:
    """The current ``rho`` and the rule for the next one.

    Args:
        rho_0: First value, > 0 (paper: 0.3), or 0 to switch the penalty off.
        gamma: Growth factor, >= 1 (paper: between 1.5 and 2).
        unit: What counts as one k: an outer ``iteration`` (paper) or an ``epoch``.
        cap: Largest value; ``None`` lets rho grow without bound, as printed.
        rule: ``geometric`` or ``adaptive``.
        shrink: Share of the previous |grad Phi| below which an ``adaptive`` rho stays.

    Raises:
        UserError: A value is out of its range.

    Example:
        >>> penalty = Penalty(rho_0=0.25, gamma=2, cap=0.75)
        >>> seen = []
        >>> for _ in range(3):
        ...     seen.append(penalty.rho)
        ...     penalty.update(grad_phi_norm=None, epoch_ends=False)
        >>> seen
        [0.25, 0.5, 0.75]
    """

    def __init__(
        self,
        rho_0: float = 0.3,
        gamma: float = 1.5,
        unit: Literal["iteration", "epoch"] = "iteration",
        cap: float | None = None,
        rule: Literal["geometric", "adaptive"] = "geometric",
        shrink: float = 0.9,
    ) -> None:
        if rho_0 < 0 or gamma < 1 or (cap is not None and cap < rho_0):
            raise UserError(
                f"The penalty schedule rho_0={rho_0}, gamma={gamma}, cap={cap} is out of range: "
                "set rho_0 >= 0, gamma >= 1 and a cap of at least rho_0 (or null)."
            )
        self.rho = rho_0
        self.gamma, self.unit, self.cap, self.rule, self.shrink = gamma, unit, cap, rule, shrink
        self._previous_norm: float | None = None

    def update(self, grad_phi_norm: float | None, epoch_ends: bool) -> None:
        """Move on by one outer iteration whose |grad Phi| was ``grad_phi_norm`` (``None``: it was not computed)."""
        if self.unit == "epoch" and not epoch_ends:
            return
        if grad_phi_norm is None:
            stalled = False
        else:
            stalled = self._previous_norm is None or grad_phi_norm > self.shrink * self._previous_norm
            self._previous_norm = grad_phi_norm
        if self.rule == "geometric" or stalled:
            self.rho *= self.gamma
            if self.cap is not None:
                self.rho = min(self.rho, self.cap)

    def state_dict(self) -> dict[str, float | None]:
        """The state that a resumed run needs."""
        return {"rho": self.rho, "previous_norm": self._previous_norm}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Restore what ``state_dict`` gave."""
        assert state["rho"] is not None
        self.rho, self._previous_norm = state["rho"], state["previous_norm"]
