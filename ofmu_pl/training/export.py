"""Leaves the trained network as a folder that says what it was trained on."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_info

from ofmu_pl.data.base import data_of
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below, replacing
from ofmu_pl.support.kept import write_sums
from ofmu_pl.support.provenance import provenance
from ofmu_pl.support.records.results import PROVENANCE, ModelRecord
from ofmu_pl.training.parallel import reshard

FILES = (".csv", ".html", ".json", ".jsonl", ".yaml")  # how the names of a run's own files end


class ModelExport(pl.Callback):
    """Writes the model's folder (for language models Hugging Face's) with ``provenance.json`` when training ends.

    Args:
        folder: Name of the folder in the run's log folder; ``null``: no export.

    Raises:
        UserError: The name leads out of the log folder, or is one that the run's own files have.
    """

    def __init__(self, folder: str | None = "hf") -> None:
        self.folder = folder
        if folder is None:
            return
        below(Path("the run's folder"), folder, "--export.folder")
        first = Path(folder).parts[:1]
        if first == ("checkpoints",) or Path(folder).suffix in FILES:
            raise UserError(
                f"--export.folder {folder} would take the place of what the run itself writes: give the model a name "
                "of its own, such as hf."
            )

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write the folder in one move."""
        pl_module.ending.settle(pl_module)
        if self.folder is None or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        log_dir = trainer.log_dir  # takes all ranks
        if log_dir is not None:
            path = Path(log_dir) / self.folder
            save_model(path, trainer, pl_module)
            rank_zero_info(f"Model: {path}")


def exported(trainer: pl.Trainer, folder: Path) -> Path | None:
    """The folder within the run's that its model was exported to; ``None``: there is none."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, ModelExport) and callback.folder is not None and (folder / callback.folder).is_dir():
            return folder / callback.folder
    return None


def save_model(path: Path, trainer: pl.Trainer, pl_module: Any, **more: Any) -> None:
    """Write a network and what it was trained on (with ``more`` facts) in one move; takes all ranks."""
    recipe, data = pl_module.recipe, data_of(trainer)
    network = pl_module.network if recipe.in_shards else pl_module.whole_network()
    reshard(network)
    if trainer.is_global_zero:
        write_model(path, network, recipe, data, model_facts(trainer, pl_module, **more))
    elif recipe.in_shards:
        recipe.save(network, path, data)  # into the folder that the first rank names


def model_facts(trainer: pl.Trainer, pl_module: Any, **more: Any) -> dict[str, Any]:
    """What a network was trained on, with ``more`` facts."""
    return provenance(
        data_of(trainer),
        method=type(pl_module).__name__,
        streams=list(pl_module.streams),
        steps=trainer.global_step,
        **more,
    )


def write_model(path: Path, network: Any, recipe: Any, datamodule: Any, facts: dict[str, Any]) -> None:
    """Write a network in one move, with what it was trained on (``model_facts``)."""
    with replacing(path) as temporary:
        temporary.mkdir()
        recipe.save(network, temporary, datamodule)
        ModelRecord(facts).write(temporary / PROVENANCE)
        write_sums(temporary)
