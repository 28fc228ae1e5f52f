"""The record of a run: what it measured, in which iteration, and where else that goes.

Scalars go to TensorBoard's event files, or to ``metrics.csv`` where TensorBoard is not installed.
"""

import resource
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.loggers import Logger
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from ofmu_pl.support.extras import installed

CURVES = (
    *("L_f", "inner/L_f", "inner/distance", "L_r", "Sim", "grad_L_f", "grad_L_r", "grad_Phi"),
    *("rho", "penalty", "penalty_share", "curvature", "gradient_norm"),
)
"""Names of the values that ``results.json`` keeps of every iteration; ``gradient_norm`` is the norm of the whole
descent direction before it is clipped (for OFMU |grad F|, unless ``penalty_clip`` has changed it)."""
LONGEST = 1000  # last iteration of the curves; the rest of a longer run is in its event file
Series = dict[str, dict[str, list[Any]]]
"""Values by name: ``step``, the iterations in which they were measured, and ``value``."""


def logger_of(folder: Path, version: int | None = None) -> TensorBoardLogger | CSVLogger:
    """Make the logger of a version of a run; ``None``: it has no folder yet, or this process writes nothing."""
    if installed("tensorboard"):
        return TensorBoardLogger(folder.parent, name=folder.name, version=version, default_hp_metric=False)
    return CSVLogger(folder.parent, name=folder.name, version=version)


class RunRecord:
    """What a run measured, each value at the iteration that measured it and at no other.

    Iterations count from 1; a measurement before the first one stands at 0. The record is part of every checkpoint,
    and a run that goes on writes it anew to its event file before anything else. So the files of an interrupted run are
    those of an undisturbed one, also where it was killed after its last checkpoint.

    Attributes:
        curves: Some values of every iteration, for figures.
        logged: All values that went to the loggers.
        history: Measurements of the model along the run: ``step`` and ``metrics``.
    """

    def __init__(self) -> None:
        self.curves: Series = {}
        self.logged: Series = {}
        self.history: list[dict[str, Any]] = []
        self._in_files = False

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Keep what an iteration measured."""
        if step <= LONGEST:
            _extend(self.curves, step, {name: values[name] for name in CURVES if name in values})

    def log(self, loggers: Iterable[Logger], step: int, values: Mapping[str, float], *, last: bool = False) -> None:
        """Write values to the loggers, after those that an earlier part of the run logged.

        By the ``last`` values runs are compared: TensorBoard shows the settings beside them.
        """
        loggers = list(loggers)
        if not self._in_files:
            self._in_files = True
            if self.logged:
                self._rewrite(loggers)
        _extend(self.logged, step, values)
        for logger in loggers:
            if last and isinstance(logger, TensorBoardLogger):
                logger.log_hyperparams(dict(logger.hparams), dict(values), step)  # logs the values, too
            else:
                logger.log_metrics(dict(values), step=step)

    def state_dict(self) -> dict[str, Any]:
        """The record, for a checkpoint."""
        return {"curves": self.curves, "logged": self.logged, "history": self.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""
        self.curves, self.logged, self.history = state["curves"], state["logged"], state["history"]

    @rank_zero_only
    def _rewrite(self, loggers: Iterable[Logger]) -> None:
        """Void all points in the folder's files, and write those of the record; other loggers add to what they have."""
        by_step: dict[int, dict[str, Any]] = {}
        for name, points in self.logged.items():
            for step, value in zip(points["step"], points["value"], strict=True):
                by_step.setdefault(step, {})[name] = value
        for logger in loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.purge_step = 0  # told to readers when the writer opens its next file
                logger.experiment.close()
            elif isinstance(logger, CSVLogger):
                logger.experiment.metrics.clear()
                Path(logger.experiment.metrics_file_path).unlink(missing_ok=True)
            else:
                continue
            for step in sorted(by_step):
                logger.log_metrics(by_step[step], step=step)


def _extend(series: Series, step: int, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        points = series.setdefault(name, {"step": [], "value": []})
        points["step"].append(step)
        points["value"].append(float(value))


def peak_memory(device: torch.device) -> float:
    """Peak memory of this process so far, in bytes: allocated on the GPU, or resident on the CPU."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
