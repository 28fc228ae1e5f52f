"""Leaves the trained network as a folder that says what it was trained on."""

from pathlib import Path
from typing import Any, Literal

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
        dtype: Type of a language model's weights; ``null``: that of the model which was read. The model is measured as
            it is written.
        adapters: Write adapters alone, for peft and servers, in float32: ``beside`` the merged model, in a folder named
            ``...-adapters``, or ``instead`` of it; ``null``: not at all.

    Raises:
        UserError: The name leads out of the log folder, or is one that the run's own files have.
    """

    def __init__(
        self,
        folder: str | None = "hf",
        dtype: Literal["float32", "bfloat16", "float16"] | None = None,
        adapters: Literal["beside", "instead"] | None = None,
    ) -> None:
        if adapters not in (None, "beside", "instead"):
            raise UserError(f"There is no export.adapters {adapters}: give beside, instead or null.")
        self.folder, self.adapters = folder, adapters
        self.form = ({"dtype": dtype} if dtype else {}) | ({"alone": True} if adapters == "instead" else {})
        if folder is None:
            if adapters:
                raise UserError("export.adapters needs a folder: leave out export.folder, or say where in it.")
            return
        below(Path("the run's folder"), folder, "--export.folder")
        first = Path(folder).parts[:1]
        if first == ("checkpoints",) or Path(folder).suffix in FILES:
            raise UserError(
                f"--export.folder {folder} would take the place of what the run itself writes: give the model a name "
                "of its own, such as hf."
            )

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """Refuse a form that the network cannot be written in, before any work."""
        if stage == "fit":
            pl_module.recipe.check_form(**self.form | ({"alone": True} if self.adapters else {}))

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write the folder in one move."""
        pl_module.ending.settle(pl_module)
        if self.folder is None or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        log_dir = trainer.log_dir  # takes all ranks
        if log_dir is not None:
            path = Path(log_dir) / self.folder
            save_model(path, trainer, pl_module, self.form)
            rank_zero_info(f"Model: {path}")
            if self.adapters == "beside":
                beside = path.with_name(f"{path.name}-adapters")
                save_model(beside, trainer, pl_module, {"alone": True})
                rank_zero_info(f"Adapters: {beside}")


def export_of(trainer: pl.Trainer) -> ModelExport | None:
    """The callback that exports the model; ``None``: nothing is exported."""
    found = (c for c in trainer.callbacks if isinstance(c, ModelExport) and c.folder is not None)  # type: ignore[attr-defined]
    return next(found, None)


def exported(trainer: pl.Trainer, folder: Path) -> Path | None:
    """The folder within the run's that its model was exported to; ``None``: there is none."""
    export = export_of(trainer)
    path = folder / str(export.folder) if export is not None else None
    return path if path is not None and path.is_dir() else None


def become_exported(trainer: pl.Trainer, pl_module: Any) -> None:
    """Give a trained network the weights that were exported, if any, to be measured; takes all ranks."""
    export = export_of(trainer)
    if export is not None:
        for keeper in trainer.checkpoint_callbacks:  # the last checkpoint is of what was trained
            keeper.on_train_end(trainer, pl_module)
        reshard(pl_module.network)
        pl_module.recipe.become_saved(pl_module.network, **export.form)
        pl_module.weights_changed()


def save_model(
    path: Path, trainer: pl.Trainer, pl_module: Any, form: dict[str, Any] | None = None, **more: Any
) -> None:
    """Write a network and what it was trained on (with ``more`` facts) in one move; takes all ranks.

    A ``form`` is what ``recipe.save`` takes beside the folder.
    """
    recipe, data = pl_module.recipe, data_of(trainer)
    network = pl_module.network if recipe.in_shards else pl_module.whole_network()
    reshard(network)
    if trainer.is_global_zero:
        write_model(path, network, recipe, data, model_facts(trainer, pl_module, **more), **form or {})
    elif recipe.in_shards:
        recipe.save(network, path, data, **form or {})  # into the folder that the first rank names


def model_facts(trainer: pl.Trainer, pl_module: Any, **more: Any) -> dict[str, Any]:
    """What a network was trained on, with ``more`` facts."""
    return provenance(
        data_of(trainer),
        method=type(pl_module).__name__,
        streams=list(pl_module.streams),
        steps=trainer.global_step,
        **more,
    )


def write_model(path: Path, network: Any, recipe: Any, datamodule: Any, facts: dict[str, Any], **form: Any) -> None:
    """Write a network in one move, in a form that ``recipe.save`` takes, with what it was trained on."""
    with replacing(path) as temporary:
        temporary.mkdir()
        recipe.save(network, temporary, datamodule, **form)
        ModelRecord(facts).write(temporary / PROVENANCE)
        write_sums(temporary)
