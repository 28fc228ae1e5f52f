"""``fit --dry_run``: the words of a run, and a table of what would fail in it instead of the run."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ofmu_pl.cli.options import check_devices
from ofmu_pl.cli.originals import train_originals
from ofmu_pl.cli.plan import PlanCLI
from ofmu_pl.cli.words import as_options
from ofmu_pl.planning.dry_run import Rehearsal


class DryRunCLI(PlanCLI):
    """``fit`` with a rehearsal in the place of the trainer, so that no device is asked for and nothing is written."""

    dry = True

    def fit(self, ckpt_path: str | None = None, **kwargs: Any) -> None:
        """Try the configuration.

        Raises:
            SystemExit: Something in it is wrong.
        """
        trainer = self.trainer_settings
        strategy = self._get(self.config_init, "trainer", default={})["strategy"]
        check_devices({"accelerator": "cpu", "strategy": strategy, "precision": trainer["precision"]})
        how = self._get(self.config_init, "original")
        if how is None:
            train_originals(self.model, None, [], lambda **_: None)  # type: ignore[arg-type]
        else:
            how.filled(self.model.recipe)
        rehearsal = Rehearsal(
            self.model,
            self.datamodule,
            self._get(self.config_init, "evaluation"),
            trainer,
            strategy,
            self._get(self.config_init, "export").folder is not None,
        )
        console = Console()
        with console.status("Going through one iteration without weights"):
            course = rehearsal.run()
        for step in course.steps:
            step.fault = as_options(step.fault)
        course.show(console)
        if course.fault:
            raise SystemExit(1)
