"""What a preference method's frozen model costs: scored once and kept, or run live at every step.

    python scripts/bench_reference.py --data FOLDER --model FOLDER [--steps 8] [--rounds 3] [--json FILE]

NPO on TOFU's forget10, batch 32. The two alternate, each run in a process of its own: median seconds a step, peak
memory of the process, and how far apart their weights end (plain SGD: AdamW magnifies rounding).
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ofmu_pl.data import TOFU
from ofmu_pl.losses import token_nll
from ofmu_pl.modules import NPO
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.files import write_json
from ofmu_pl.training.record import peak_memory


class LiveNPO(NPO):
    """NPO with a second model that is run at every step, as upstream does it."""

    per_item_reference = ()

    def reference(self, stream: str, part: Batch) -> Tensor:
        """(b,) summed losses under the frozen model, computed now."""
        with self.frozen() as model:
            return token_nll(*self.recipe.logits(model, part)).sum(1)


class Seconds(pl.Callback):
    """Collects each step's seconds."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Take the module's own figure."""
        self.values.append(float(trainer.callback_metrics["seconds"]))


def run(live: bool, data: str, model: str, steps: int) -> tuple[float, float, np.ndarray]:
    """Median seconds a step, peak bytes, and the weights at the end."""
    pl.seed_everything(0)
    method = LiveNPO if live else NPO
    module = method(CausalLM(path=model), micro_batch_size=8, optimizer=lambda p: torch.optim.SGD(p, lr=0.05))
    seconds = Seconds()
    trainer = pl.Trainer(
        max_steps=steps,
        max_epochs=-1,
        devices=1,
        callbacks=[seconds],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        log_every_n_steps=1,
    )
    trainer.fit(module, datamodule=TOFU(data, tokenizer=model, streams=module.streams))
    weights = torch.cat([p.detach().cpu().flatten() for p in module.trained.parameters()]).numpy()
    return statistics.median(seconds.values[1:]), peak_memory(module.device), weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="TOFU's files")
    parser.add_argument("--model", required=True, help="a Hugging Face folder")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    o = parser.parse_args()
    found: dict[bool, list[tuple[float, float, np.ndarray]]] = {False: [], True: []}
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for _ in range(o.rounds):
            for live, runs in found.items():
                runs.append(pool.submit(run, live, o.data, o.model, o.steps).result())
    seconds = {live: statistics.median(r[0] for r in runs) for live, runs in found.items()}
    memory = {live: statistics.median(r[1] for r in runs) for live, runs in found.items()}
    apart = float(np.abs(found[True][0][2] - found[False][0][2]).max())
    table = Table("frozen model", "seconds / step", "peak MB", title=f"NPO, {date.today()}")
    for live, name in ((False, "scored once"), (True, "live")):
        table.add_row(name, f"{seconds[live]:.2f}", f"{memory[live] / 1e6:.0f}")
    table.add_row("ratio", f"{seconds[True] / seconds[False]:.2f}", f"{memory[True] / memory[False]:.2f}")
    Console().print(table)
    Console().print(f"Largest difference of a weight after {o.steps} steps: {apart:.1e}")
    if o.json:
        names = {False: "cached", True: "live"}
        figures = {names[k]: {"seconds": seconds[k], "bytes": memory[k]} for k in found}
        write_json(o.json, {"date": str(date.today()), "torch": torch.__version__, "apart": apart, **figures})


if __name__ == "__main__":
    main()
