"""Measures a run on rows that no reported metric uses, so that settings may be chosen by them."""

from collections.abc import Hashable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
from torch import Tensor

from ofmu_pl.data.base import data_of
from ofmu_pl.data.encoded import Row
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import write_json
from ofmu_pl.support.processes import gathered, own_share
from ofmu_pl.training.together import together

ITEMS = 100  # number of rows of each split that are measured, drawn with the data's seed


class ValidationRows(pl.Callback):
    """Writes ``validation.json`` when training ends: mean probability of forget answers and of unreported retain ones.

    Retain rows are drawn from those in no evaluation set; forget rows from the split, which has no others. (Of
    WMDP's texts every second piece at least is in none.) Nothing is written for images: their results hold the accuracy
    of validation images.
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse, before the run, data that hold nothing to choose settings by.

        Raises:
            UserError: All retain rows are evaluated, or there are no validation images.
        """
        data = data_of(trainer)
        if data.modality == "text":
            _unreported(data)
        elif not len(data.evaluation_sets["validation"]):
            raise UserError(
                f"'{data.name}' has no validation images to choose settings by: set data.validation_fraction or "
                "data.validation."
            )

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Measure the weights that are kept, and write."""
        pl_module.ending.settle(pl_module)
        data = data_of(trainer)
        if data.modality != "text":
            return
        log_dir = trainer.log_dir  # takes all ranks
        rows = {"forget": list(range(len(data.splits["forget"]))), "retain": _unreported(data)}
        rng = np.random.default_rng(data.seed)
        means = {}
        for name, index in rows.items():
            chosen = [index[i] for i in rng.permutation(len(index))[:ITEMS]]
            means[name] = _probability(pl_module, data, name, chosen)
        if trainer.is_global_zero and log_dir is not None:
            write_json(Path(log_dir) / "validation.json", means)


def _unreported(data: TextDataModule) -> list[int]:
    """Retain rows that are in no evaluation set, at least one."""
    reported = set(map(_shown, chain.from_iterable(data.evaluation_sets.values())))
    left = [i for i, row in enumerate(data.splits["retain"]) if _shown(row) not in reported]
    if not left:
        raise UserError(
            f"'{data.name}' evaluates all retain rows: nothing is left to choose settings by, so give more."
        )
    return left


def _probability(pl_module: Any, data: TextDataModule, split: str, index: list[int]) -> float:
    """Mean over rows of exp(-nats per token); every rank takes its share."""
    mine, values = index[own_share()], []

    def losses(rows: list[int]) -> Tensor:
        batch = {name: x.to(pl_module.device) for name, x in data.collate(split, rows, 0).items()}
        return pl_module.recipe.sample_losses(pl_module.network, batch)

    with together(pl_module.network, partial(losses, index[:1])):
        for start in range(0, len(mine), data.batch_size):
            values += losses(mine[start : start + data.batch_size]).double().neg().exp().tolist()
    return float(np.mean(np.concatenate(gathered(values))))


def _shown(row: Row) -> Hashable:
    """The part of a row that a model sees before its answer: the question, or a piece of text as a whole."""
    return row["question"] if "question" in row else tuple(row["tokens"])
