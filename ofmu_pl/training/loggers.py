"""Where the scalars of a run go: TensorBoard's event files, or ``metrics.csv`` where TensorBoard is not installed."""

from __future__ import annotations

from pathlib import Path

from lightning.fabric.loggers import Logger
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from ofmu_pl.support.extras import installed


def logger_of(folder: Path, version: int | None = None) -> TensorBoardLogger | CSVLogger:
    """Make the logger of a run.

    Args:
        folder: Folder that holds the versions of the run.
        version: Number of this one; ``None``: it has no folder yet, or this process writes nothing.
    """
    if installed("tensorboard"):
        return TensorBoardLogger(folder.parent, name=folder.name, version=version, default_hp_metric=False)
    return CSVLogger(folder.parent, name=folder.name, version=version)


@rank_zero_only
def void(logger: Logger, first: int) -> int | None:
    """Take back what a logger was told of an iteration and of those after it.

    Args:
        logger: Any logger.
        first: The iteration.

    Returns:
        The iteration from which on the logger has to be told everything anew; ``None``: it adds to what it has, or this
        is not the rank that writes.
    """
    if isinstance(logger, TensorBoardLogger):
        logger.experiment.purge_step = first  # told to readers when the writer opens its next file
        logger.experiment.close()
        return first
    if isinstance(logger, CSVLogger):
        logger.experiment.metrics.clear()
        Path(logger.experiment.metrics_file_path).unlink(missing_ok=True)
        return 0
    return None
