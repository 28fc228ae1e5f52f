"""Histograms in TensorBoard: what models make of single rows, before a run, after it, and retrained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from lightning.pytorch.loggers import Logger, TensorBoardLogger


def log_histograms(loggers: Iterable[Logger], sides: Mapping[str, Mapping[str, np.ndarray]], step: int) -> None:
    """Log values of rows."""
    for logger in loggers:
        if not isinstance(logger, TensorBoardLogger):
            continue
        for side, found in sides.items():
            for name, values in found.items():
                finite = values[np.isfinite(values)]
                if len(finite):
                    logger.experiment.add_histogram(f"{name}/{side}", finite, step)
