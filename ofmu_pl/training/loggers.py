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
def void(logger: Logger) -> bool:
    """Take back all that a logger was told.

    Args:
        logger: Any logger.

    Returns:
        Whether the logger has to be told everything anew: not if it adds to what it has, nor on a rank that does not
        write.
    """
    if isinstance(logger, TensorBoardLogger):
        logger.experiment.purge_step = 0  # told to readers when the writer opens its next file
        logger.experiment.close()
        return True
    if isinstance(logger, CSVLogger):
        logger.experiment.metrics.clear()
        Path(logger.experiment.metrics_file_path).unlink(missing_ok=True)
        return True
    return False
