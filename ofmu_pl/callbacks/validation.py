"""How a run did on rows that no reported metric looks at: what settings may be chosen by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np

from ofmu_pl.callbacks.evaluation import data_of
from ofmu_pl.files import write_json
from ofmu_pl.metrics import probability
from ofmu_pl.networks.scoring import score_rows


class ValidationRows(pl.Callback):
    """Writes ``validation.json`` when training ends: mean probability of forget answers and of unreported retain ones.

    Retain rows are drawn from those in no evaluation set; forget rows from the split, which has no others.

    Args:
        items: Rows of each, drawn by the data's seed.
    """

    def __init__(self, items: int = 100) -> None:
        self.items = items

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Measure and write."""
        log_dir = trainer.log_dir  # takes all ranks
        data = data_of(trainer)
        reported = {row["question"] for rows in data.evaluation_sets.values() for row in rows}
        unseen = [row for row in data.splits["retain"] if row["question"] not in reported]
        rng = np.random.default_rng(data.seed)
        sets = {}
        for name, rows in (("forget", data.splits["forget"]), ("retain", unseen)):
            chosen = rng.permutation(len(rows))[: self.items]
            sets[name] = [{k: rows[i][k] for k in ("question", "answer")} for i in chosen]
        scores = score_rows(pl_module.whole_network(), data.encoder, sets, max_new_tokens=None)
        if trainer.is_global_zero and log_dir is not None:
            means = {name: float(probability(s.answer_loss).mean()) for name, s in scores.items()}
            write_json(Path(log_dir) / "validation.json", means)
