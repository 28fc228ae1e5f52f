"""``plan`` and ``fit --dry_run``: the words of ``fit``, and one rehearsal instead of the run."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ofmu_pl.cli.app import UnlearningCLI
from ofmu_pl.cli.originals import train_originals
from ofmu_pl.planning.course import Course
from ofmu_pl.planning.rehearsal import Rehearsal
from ofmu_pl.support.errors import UserError


class PlanCLI(UnlearningCLI):
    """``fit`` with a rehearsal instead of a trainer, so that no device is asked for and nothing is written."""

    trainer: Any

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        """Return the rehearsal."""
        trainer = self._get(self.config, "trainer").as_dict()
        return Rehearsal(trainer, self._get(self.config_init, "trainer")["strategy"])

    def fit(self, ckpt_path: str | None = None, **kwargs: Any) -> None:
        """Print what the run would take."""
        course = self._tried(blank=True)
        if course.fault:
            raise UserError(course.fault)
        self.trainer.needs.show(Console())

    def _tried(self, *, blank: bool) -> Course:
        with Console().status("Going through one iteration without weights"):
            course: Course = self.trainer.fit(self.model, self.datamodule, blank=blank)
        return course


class DryRunCLI(PlanCLI):
    """The same with the run's own rows, and with what follows an iteration: a table of what would fail."""

    dry = True

    def fit(self, ckpt_path: str | None = None, **kwargs: Any) -> None:
        """Try the configuration."""
        how = self._get(self.config_init, "original")
        if how is None:
            train_originals(self.model, None, [], lambda **_: None)  # type: ignore[arg-type]
        else:
            how.filled(self.model.recipe)
        self.trainer.evaluation = self._get(self.config_init, "evaluation")
        self.trainer.exports = self._get(self.config_init, "export").folder is not None
        course = self._tried(blank=False)
        course.show(Console())
        if course.fault:
            raise SystemExit(1)
