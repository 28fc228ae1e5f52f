"""CPU time of training steps: this library's beside open-unlearning's, for GradDiff and NPO on the same rows.

    git clone https://github.com/locuslab/open-unlearning FOLDER    # it needs omegaconf and deepspeed
    OFMU_CACHE= OMP_NUM_THREADS=1 python scripts/bench_training.py --open-unlearning FOLDER --data TOFU --model MODEL

Both take 32 forget and 32 retain rows a step and AdamW in float32. open-unlearning accumulates four batches of 8, as
its recipe says; this library takes micro-batches of 4 rows of like length. Short runs of the two alternate in one
process. A step lasts from the end of the step before to its own end, so that drawing rows counts; the first step of a
run is left out. This library scores NPO's frozen model before the first step (with OFMU_CACHE= in each run), which
stands in a column of its own.
"""

import argparse
import platform
import statistics
import sys
import tempfile
import time
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.table import Table
from torch.optim import AdamW
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, TrainerCallback, TrainingArguments

from ofmu_pl import NPO, TOFU, CausalLM, GradDiff
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.support.files import write_json

ROWS, THEIR_PART, PART, RATE, DECAY = 32, 8, 4, 1e-5, 0.01
"""Rows of a stream a step, of a pass there and here, AdamW's learning rate and decay."""
OURS: dict[str, type[UnlearningModule]] = {"GradDiff": GradDiff, "NPO": NPO}


class Ours(Callback):
    """Notes when each of this library's steps ends."""

    def __init__(self) -> None:
        self.ends = [time.process_time()]

    def on_train_batch_end(self, *args: Any) -> None:
        """Note the process's CPU seconds."""
        self.ends.append(time.process_time())


class Theirs(TrainerCallback):  # type: ignore[misc]
    """Notes when each of open-unlearning's steps ends."""

    def __init__(self) -> None:
        self.ends = [time.process_time()]

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Note the process's CPU seconds."""
        self.ends.append(time.process_time())


class Rows(Dataset[dict[str, torch.Tensor]]):
    """A split's rows as open-unlearning's collator takes them."""

    def __init__(self, data: TOFU, split: str) -> None:
        self.rows = [data.encoder.encode(row["question"], row["answer"]) for row in data.splits[split]]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        row = self.rows[i]
        return {"input_ids": torch.tensor(row.input_ids), "labels": torch.tensor(row.labels)}


def time_ours(method: str, options: argparse.Namespace) -> list[float]:
    """CPU seconds at the start, and at the end of each step."""
    module = OURS[method](
        CausalLM(options.model), optimizer=partial(AdamW, lr=RATE, weight_decay=DECAY), micro_batch_size=PART
    )
    drawn: dict[str, Any] = {"streams": module.streams, "num_batches": module.num_batches}
    data = TOFU(options.data, tokenizer=options.model, batch_size=ROWS, **drawn)
    clock = Ours()
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=options.steps,
        max_epochs=-1,
        limit_val_batches=0,
        enable_checkpointing=False,
        callbacks=[clock],
        **quiet,
    )
    trainer.fit(module, datamodule=data)
    return clock.ends


def time_theirs(method: str, options: argparse.Namespace, data: TOFU) -> list[float]:
    """The same of open-unlearning's method of that name."""
    from data.collators import DataCollatorForSupervisedDataset  # type: ignore[import-not-found]
    from data.unlearn import ForgetRetainDataset  # type: ignore[import-not-found]
    from trainer import TRAINER_REGISTRY  # type: ignore[import-not-found]

    class Method(TRAINER_REGISTRY[method]):  # type: ignore[misc]
        """The method as it is, under a transformers that gives ``compute_loss`` one argument more."""

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
            return super().compute_loss(model, inputs, return_outputs)

    made = {"NPO": {"beta": 0.1}, "GradDiff": {}}[method]
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, trust_remote_code=False)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=THEIR_PART,
            gradient_accumulation_steps=ROWS // THEIR_PART,
            learning_rate=RATE,
            weight_decay=DECAY,
            max_steps=options.steps,
            use_cpu=True,
            optim="adamw_torch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        clock = Theirs()
        trainer = Method(
            model=model,
            args=arguments,
            train_dataset=ForgetRetainDataset(Rows(data, "forget"), Rows(data, "retain")),
            data_collator=DataCollatorForSupervisedDataset(data.tokenizer),
            callbacks=[clock],
            **made,
        )
        trainer.train()
    return clock.ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open-unlearning", required=True, type=Path, help="a clone of its repository")
    parser.add_argument("--data", required=True, help="TOFU's files")
    parser.add_argument("--model", required=True, help="a Hugging Face folder")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5, help="of each run, the first of which is left out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(options.open_unlearning / "src"))
    data = TOFU(options.data, tokenizer=options.model)
    data.setup()

    measured: dict[str, Any] = {}
    table = Table(title=f"A training step, {torch.get_num_threads()} threads, {date.today()}")
    for column in ("method", "open-unlearning, CPU s", "ours, CPU s", "ratio", "ours, to the first step's end, CPU s"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method in OURS:
        steps: dict[str, list[float]] = {"theirs": [], "ours": []}
        first = []
        for _ in range(options.rounds):
            for name, ends in (("theirs", time_theirs(method, options, data)), ("ours", time_ours(method, options))):
                steps[name] += [after - before for before, after in pairwise(ends[1:])]
            first.append(ends[1] - ends[0])
        medians = {name: statistics.median(seconds) for name, seconds in steps.items()}
        ratio = medians["theirs"] / medians["ours"]
        measured[method] = {**medians, "ratio": ratio, "first": statistics.median(first)}
        table.add_row(
            method,
            f"{medians['theirs']:.2f}",
            f"{medians['ours']:.2f}",
            f"{ratio:.2f}",
            f"{measured[method]['first']:.1f}",
        )
    Console(width=120).print(table)
    if options.json:
        facts = {"date": str(date.today()), "machine": platform.machine(), "torch": torch.__version__}
        write_json(options.json, {**facts, "steps": measured})


if __name__ == "__main__":
    main()
