"""Leaves the trained network as a Hugging Face folder that says what it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_info

from ofmu_pl.files import replacing, write_json
from ofmu_pl.networks.adapters import merged
from ofmu_pl.provenance import provenance


class HuggingFaceExport(pl.Callback):
    """Writes ``hf/`` (weights, configuration, tokenizer, ``provenance.json``) when training ends.

    Args:
        folder: Name of the folder in the run's log folder; ``null``: no export.
    """

    def __init__(self, folder: str | None = "hf") -> None:
        self.folder = folder

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the folder in one move."""
        if self.folder is None or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        log_dir = trainer.log_dir  # takes all ranks
        if log_dir is None or not trainer.is_global_zero:
            return
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        network: Any = pl_module.network
        path = Path(log_dir) / self.folder
        use_cache, network.config.use_cache = network.config.use_cache, True  # generation wants it
        try:
            with replacing(path) as temporary:
                merged(network).save_pretrained(temporary)
                datamodule.tokenizer.save_pretrained(temporary)
                facts = provenance(
                    datamodule,
                    method=type(pl_module).__name__,
                    streams=list(pl_module.streams),  # type: ignore[arg-type]
                    steps=trainer.global_step,
                )
                write_json(temporary / "provenance.json", facts)
        finally:
            network.config.use_cache = use_cache
        rank_zero_info(f"Model: {path}")
