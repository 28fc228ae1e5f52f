"""The command ``plan``: the words of ``fit``, and a table of what that run would take instead of the run."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from ofmu_pl.cli.app import UnlearningCLI
from ofmu_pl.planning.plan import plan, show


class PlanCLI(UnlearningCLI):
    """``fit`` with a planner in the place of the trainer, so that no device is asked for."""

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        """Return the planner, which stands in the trainer's place."""
        return Planner(self.trainer_settings)

    @property
    def trainer_settings(self) -> dict[str, Any]:
        """The trainer's part of the configuration."""
        given = self._get(self.config, "trainer", default={})
        return dict(given.as_dict() if hasattr(given, "as_dict") else given)

    def fit(self, ckpt_path: str | None = None, **kwargs: Any) -> None:
        """The planner's: nothing is trained first, and no folder is made."""
        self.trainer.fit(**kwargs)


class Planner:
    """What ``fit`` is called on.

    Args:
        config: The trainer's configuration.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def fit(self, model: Any, datamodule: Any, **_: Any) -> None:
        """Print what the run would take."""
        console = Console()
        with console.status("Going through one iteration without weights"):
            result = plan(model, datamodule, self.config)
        show(result, console)
