"""Stops a run when its work is done: the fair way to compare methods whose iterations cost differently."""

from typing import Any

import lightning.pytorch as pl

from ofmu_pl.support.errors import UserError, check_range


class GradientBudget(pl.Callback):
    """Ends training after the last whole iteration within a budget.

    An iteration is expected to cost as much as the costliest earlier one of its kind; the first counts only while it
    is alone. ``UnlearningModule.period`` says after how many iterations kinds repeat. A kind not seen yet is tried, and
    so may an iteration be in which a method's part first acts: one such iteration can end beyond the budget.

    Args:
        gradients: Number of gradients of one batch's loss that may be spent
            (``UnlearningModule.gradient_evaluations``).

    Raises:
        UserError: The number is not above 0.
    """

    def __init__(self, gradients: float) -> None:
        check_range(0, above=True, gradients=gradients)
        self.gradients = gradients
        self._spent = 0.0
        self._costs: list[float] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin to count; a resumed run has spent some of its budget already, perhaps all of it."""
        self._spent = _spent(pl_module)
        self._stop_if_spent(pl_module)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        """Take out of the first iteration's cost what a method has read before it."""
        if not self._costs:
            self._spent = _spent(pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        """Stop if one more iteration would not fit.

        Raises:
            UserError: Not even one iteration fits.
        """
        spent = _spent(pl_module)
        if spent > self.gradients and not self._costs:
            raise UserError(
                f"What {type(pl_module).__name__} reads before its first iteration, and that one, take {spent:.0f} "
                f"gradients, the budget is {self.gradients:.0f}: give a larger one."
            )
        self._costs.append(spent - self._spent)
        self._spent = spent
        self._stop_if_spent(pl_module)

    def state_dict(self) -> dict[str, list[float]]:
        """The costs of the iterations so far, for a checkpoint."""
        return {"costs": self._costs}

    def load_state_dict(self, state_dict: dict[str, list[float]]) -> None:
        """Restore what ``state_dict`` gave."""
        self._costs = list(state_dict["costs"])

    def _stop_if_spent(self, method: Any) -> None:
        # Of its kind the first iteration may be dear for once: it seeks the steps of differences.
        first, *later = self._costs[len(self._costs) % method.period :: method.period] or [0.0]
        if self._spent + max(later, default=first) > self.gradients:
            method.run.stop("its budget of gradients was spent")


def _spent(method: Any) -> float:
    """Gradients so far, by the first rank's count: one with fewer rows counts less, and all must stop together."""
    return float(method.run.ranks.first(float(method.gradient_evaluations)))
