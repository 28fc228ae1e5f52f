"""Measures a run before, along and after it, against a retrained model, and writes ``results.json``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from ofmu_pl.callbacks.reference import Reference, load_reference
from ofmu_pl.callbacks.table import Metrics, print_table
from ofmu_pl.files import replacing, write_json
from ofmu_pl.metrics import MetricResult, tofu_metrics
from ofmu_pl.modules.base import peak_memory
from ofmu_pl.networks.scoring import score_rows
from ofmu_pl.provenance import provenance


class UnlearningEvaluation(pl.Callback):
    """TOFU's metrics before, every so many outer iterations, and after; ``validate`` and ``test`` only measure.

    Args:
        reference: Retrained model that forgetting is compared with: its folder or hub id, or the ``reference.json``
            that an earlier run wrote; ``null``: no forget quality and no targets.
        every_n_steps: Outer iterations between two cheap measurements (probabilities and truth ratios, nothing
            generated); ``null``: none.
        interim_items: Rows of each set that a cheap measurement looks at.
        max_new_tokens: Length of generated answers.
    """

    def __init__(
        self,
        reference: str | None = None,
        every_n_steps: int | None = None,
        interim_items: int = 100,
        max_new_tokens: int = 200,
    ) -> None:
        self.source, self.every_n_steps = reference, every_n_steps
        self.interim_items, self.max_new_tokens = interim_items, max_new_tokens
        self.reference: Reference | None = None
        self.before: Metrics = {}
        self.history: list[dict[str, Any]] = []
        self._generations_before: dict[str, list[str]] = {}
        self._seconds = {"training": 0.0, "evaluation": 0.0}
        self._started = 0.0

    # Around training -------------------------------------------------------------------------------------------------

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the reference before any work, then measure the model that shall forget."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if self._unlearns(pl_module):
            self._load_reference(trainer, pl_module)
            if not self.before:  # a resumed run has it from its checkpoint
                self.before, self._generations_before = self._measure(trainer, pl_module, "before")
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A cheap measurement every ``every_n_steps``, the last one excepted: the full one follows."""
        step = trainer.global_step
        due = self.every_n_steps and step % self.every_n_steps == 0
        if not due or step == trainer.max_steps or not self._unlearns(pl_module):
            return
        self._pause()
        metrics, _ = self._measure(trainer, pl_module, None)
        self.history.append({"step": step, "metrics": {k: v.as_dict() for k, v in metrics.items()}})
        self._started = time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure what came out, write everything, print the table."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        self._pause()
        self._finish(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """``validate``: measure the model as it is."""
        if trainer.state.fn == "validate":
            self._load_reference(trainer, pl_module)
            self._finish(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """``test``: the same."""
        self._load_reference(trainer, pl_module)
        self._finish(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run cannot measure again."""
        return {
            "before": {k: v.as_dict() for k, v in self.before.items()},
            "generations_before": self._generations_before,
            "history": self.history,
            "seconds": dict(self._seconds),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self.before = {k: MetricResult(**v) for k, v in state_dict["before"].items()}
        self._generations_before = state_dict["generations_before"]
        self.history, self._seconds = state_dict["history"], state_dict["seconds"]

    # Measuring -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _unlearns(pl_module: pl.LightningModule) -> bool:
        return bool(getattr(pl_module, "unlearns", True))

    def _pause(self) -> None:
        """Book the time since the last start as training."""
        self._seconds["training"] += time.perf_counter() - self._started

    def _load_reference(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.source is None or self.reference is not None:
            return
        started = time.perf_counter()
        self.reference = load_reference(
            self.source, _data(trainer), pl_module.device, self.max_new_tokens, progress=trainer.is_global_zero
        )
        if self.reference.model is None:
            rank_zero_warn(
                f"The reference '{self.source}' has no provenance.json: which rows it was trained on cannot be checked."
            )
        self._seconds["evaluation"] += time.perf_counter() - started

    def _measure(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, what: str | None
    ) -> tuple[Metrics, dict[str, list[str]]]:
        """Score the network and log; ``what`` names a full measurement, ``None`` is a cheap one."""
        started = time.perf_counter()
        data = _data(trainer)
        scores, generations = score_rows(
            pl_module.network,
            data.encoder,
            data.evaluation_sets,
            max_new_tokens=None if what is None else self.max_new_tokens,
            items=self.interim_items if what is None else None,
            progress=trainer.is_global_zero,
        )
        # A cheap measurement has other items than the reference: no test against it.
        metrics = tofu_metrics(scores, self.reference.scores if self.reference and what else None)
        prefix = "interim" if what is None else "metrics"
        if trainer.logger is not None:
            values = {f"{prefix}/{name}": result.value for name, result in metrics.items()}
            trainer.logger.log_metrics(values, step=trainer.global_step)
        self._seconds["evaluation"] += time.perf_counter() - started
        return metrics, generations

    def _finish(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        after, generations = self._measure(trainer, pl_module, "after")
        if not trainer.is_global_zero:
            return
        data = _data(trainer)
        retrained = tofu_metrics(self.reference.scores, self.reference.scores) if self.reference else {}
        columns = {"before": self.before, "after": after, "retrained": retrained}
        print_table(
            f"{data.name}, {type(pl_module).__name__}, {trainer.global_step} iterations",
            {name: metrics for name, metrics in columns.items() if metrics},
        )
        if trainer.log_dir is None:
            return
        folder = Path(trainer.log_dir)
        if self.reference is not None:
            self.reference.save(folder / "reference.json")
        self._write_samples(folder / "samples.jsonl", data.evaluation_sets, generations)
        results = {
            "metrics": _as_dicts(after),
            "before": _as_dicts(self.before),
            "reference": self.reference
            and {"source": self.source, "model": self.reference.model, "metrics": _as_dicts(retrained)},
            "history": self.history,
            "provenance": provenance(data, method=type(pl_module).__name__, steps=trainer.global_step, seed=data.seed),
            "cost": {
                "training_seconds": self._seconds["training"],
                "evaluation_seconds": self._seconds["evaluation"],
                "gradient_evaluations": float(getattr(pl_module, "gradient_evaluations", 0.0)),
                "peak_memory_bytes": peak_memory(pl_module.device),
            },
        }
        write_json(folder / "results.json", results)
        rank_zero_info(f"Results: {folder / 'results.json'}")

    def _write_samples(self, path: Path, sets: dict[str, Any], generations: dict[str, list[str]]) -> None:
        """One line a question: truth, and the answers before and after."""
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
            for name, rows in sets.items():
                before = self._generations_before.get(name, [None] * len(rows))
                for i, (row, old, new) in enumerate(zip(rows, before, generations[name], strict=True)):
                    line = {"set": name, "id": i, "question": row["question"], "truth": row["answer"]}
                    file.write(json.dumps({**line, "before": old, "after": new}, ensure_ascii=False) + "\n")


def _data(trainer: pl.Trainer) -> Any:
    return trainer.datamodule  # type: ignore[attr-defined]


def _as_dicts(metrics: Metrics) -> dict[str, Any]:
    return {name: result.as_dict() for name, result in metrics.items()}
