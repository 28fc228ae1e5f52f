"""Stops a run when its work is done: the fair way to compare methods whose iterations cost differently."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from ofmu_pl.support.errors import UserError


class GradientBudget(pl.Callback):
    """Ends training after the last whole iteration within a budget.

    Args:
        gradients: Number of gradients of one batch's loss that may be spent
            (``UnlearningModule.gradient_evaluations``).
    """

    def __init__(self, gradients: float) -> None:
        self.gradients = gradients
        self._spent = self._dearest = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Begin to count; a resumed run has spent some of its budget already, perhaps all of it."""
        self._spent = float(pl_module.gradient_evaluations)
        self._stop_if_spent(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop if one more iteration, as costly as the costliest before, would not fit.

        Raises:
            UserError: Not even one iteration fits.
        """
        spent = float(pl_module.gradient_evaluations)
        if spent > self.gradients:
            raise UserError(
                f"One iteration of {type(pl_module).__name__} takes {spent:.0f} gradients, the budget is "
                f"{self.gradients:.0f}: give a larger one."
            )
        self._dearest, self._spent = max(self._dearest, spent - self._spent), spent
        self._stop_if_spent(trainer)

    def state_dict(self) -> dict[str, float]:
        """The cost of the costliest iteration, for a checkpoint."""
        return {"dearest": self._dearest}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Restore what ``state_dict`` gave."""
        self._dearest = state_dict["dearest"]

    def _stop_if_spent(self, trainer: pl.Trainer) -> None:
        if self._spent + self._dearest > self.gradients:
            trainer.should_stop = True
