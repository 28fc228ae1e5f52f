"""``plan`` and ``fit --dry_run``: the words of ``fit``, and one rehearsal instead of the run."""

from typing import Any

from ofmu_pl.cli.app import UnlearningCLI
from ofmu_pl.cli.originals import require_target
from ofmu_pl.planning.needs import Course
from ofmu_pl.planning.rehearsal import Rehearsal
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.terminal import Prudent


class PlanCLI(UnlearningCLI):
    """``fit`` with a rehearsal instead of a trainer, so that no device is asked for and nothing is written."""

    trainer: Rehearsal  # type: ignore[assignment]

    def instantiate_trainer(self, **_: object) -> Rehearsal:  # type: ignore[override]
        """Return the rehearsal."""
        later: dict[str, Any] = {}
        if self.dry:
            later["evaluation"] = self._get(self.config_init, "evaluation")
            later["exports"] = self._get(self.config_init, "export").folder is not None
        strategy = self._get(self.config_init, "trainer")["strategy"]
        return Rehearsal(self._get(self.config, "trainer").as_dict(), strategy, **later)

    def fit(self, ckpt_path: str | None = None, **_: object) -> None:
        """Print what the run would take."""
        course = self._tried()
        if course.fault:
            raise UserError(course.fault)
        self.trainer.needs.show(Prudent())

    def _tried(self) -> Course:
        with Prudent().status("Going through one iteration without weights"):
            return self.trainer.fit(self.model, self.datamodule)


class DryRunCLI(PlanCLI):
    """The same with the run's own rows, and with what follows an iteration: a table of what would fail."""

    dry = True

    def fit(self, ckpt_path: str | None = None, **_: object) -> None:
        """Try the configuration."""
        how = self._get(self.config_init, "original")
        if how is None:
            require_target(self.model)
        else:
            how.filled(self.model.recipe)
        course = self._tried()
        course.show(Prudent())
        if course.fault:
            raise SystemExit(1)
