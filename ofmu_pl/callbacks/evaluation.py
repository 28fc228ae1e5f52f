"""Measures a run before, along and after it, against a retrained model, and writes what it found."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from ofmu_pl.callbacks.histograms import draw_histograms
from ofmu_pl.callbacks.outputs import write_open_unlearning_logs, write_samples
from ofmu_pl.callbacks.reference import (
    Reference,
    check_comparable,
    evaluation_facts,
    load_reference,
    read_model_facts,
    scoring_facts,
)
from ofmu_pl.callbacks.table import Metrics, print_table
from ofmu_pl.errors import UserError
from ofmu_pl.files import write_json
from ofmu_pl.metrics import DEFINITIONS, DefinitionName, Scores, SetScores
from ofmu_pl.metrics.tofu import quality_ceiling
from ofmu_pl.modules.base import peak_memory
from ofmu_pl.networks.cached import cached_scores
from ofmu_pl.networks.scoring import score_rows
from ofmu_pl.provenance import provenance


class UnlearningEvaluation(pl.Callback):
    """TOFU's metrics before, every so many outer iterations, and after; ``validate`` and ``test`` only measure.

    Args:
        reference: Retrained model that forgetting is compared with: its folder or hub id, the ``reference.json``
            that an earlier run wrote, or open-unlearning's ``TOFU_EVAL.json``; ``null``: no forget quality and no
            targets.
        second_reference: One more retrained model, of another seed: its forget quality is the best to hope for.
        definition: How metrics are computed: ``exact``, ``open_unlearning`` (its numbers, its quirks included; also
            writes its TOFU_EVAL.json and TOFU_SUMMARY.json) or ``tofu_arithmetic`` (TOFU's paper's truth ratio).
        every_n_steps: Outer iterations between two cheap measurements (probabilities and truth ratios, nothing
            generated); ``null``: none.
        interim_items: Rows of each set that a cheap measurement looks at.
        max_new_tokens: Length of generated answers.
        gradient_norms: Run the gradnorm membership attack too; one gradient a forget and holdout row.
    """

    def __init__(
        self,
        reference: str | None = None,
        second_reference: str | None = None,
        definition: DefinitionName = "exact",
        every_n_steps: int | None = None,
        interim_items: int = 100,
        max_new_tokens: int = 200,
        gradient_norms: bool = False,
    ) -> None:
        self.source, self.second_source, self.definition = reference, second_reference, definition
        self.every_n_steps, self.interim_items, self.max_new_tokens = every_n_steps, interim_items, max_new_tokens
        self.gradient_norms = gradient_norms
        self.reference: Reference | None = None
        self.ceiling: Metrics = {}
        self.before: Scores = {}
        self.history: list[dict[str, Any]] = []
        self._seconds = {"training": 0.0, "evaluation": 0.0}
        self._started = 0.0

    # Around training -------------------------------------------------------------------------------------------------

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the reference before any work, then measure the model that shall forget."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if self._unlearns(pl_module):
            self._load_references(trainer, pl_module)
            if not self.before:  # a resumed run has it from its checkpoint
                self.before = self._score(trainer, pl_module.network)
                self._log(trainer, "metrics", self._metrics(trainer, self.before))
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
        # It has other items than the reference: no test against it.
        scores = self._score(trainer, pl_module.network, cheap=True)
        metrics = _data(trainer).metrics(scores, definition=self.definition)
        self._log(trainer, "interim", metrics)
        self.history.append({"step": step, "metrics": _as_dicts(metrics)})
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
            self._load_references(trainer, pl_module)
            self._finish(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """``test``: the same."""
        self._load_references(trainer, pl_module)
        self._finish(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run cannot measure again."""
        before = {name: s.as_dict() for name, s in self.before.items()}
        return {"before": before, "history": self.history, "seconds": dict(self._seconds)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self.before = {name: SetScores.from_dict(s) for name, s in state_dict["before"].items()}
        self.history, self._seconds = state_dict["history"], state_dict["seconds"]

    # Measuring -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _unlearns(pl_module: pl.LightningModule) -> bool:
        return bool(getattr(pl_module, "unlearns", True))

    def _pause(self) -> None:
        """Book the time since the last start as training."""
        self._seconds["training"] += time.perf_counter() - self._started

    def _hidden(self, trainer: pl.Trainer) -> int | None:
        """The prompt token that open-unlearning's mask hides."""
        hides = DEFINITIONS[self.definition].hides_padding_tokens
        return _data(trainer).tokenizer.pad_token_id if hides else None

    def _score(self, trainer: pl.Trainer, model: Any, cheap: bool = False) -> Scores:
        """Scores of a model; a cheap measurement sees some rows and generates nothing."""
        started = time.perf_counter()
        data = _data(trainer)
        show: dict[str, Any] = {"hidden": self._hidden(trainer), "progress": trainer.is_global_zero}
        if cheap:
            scores = score_rows(
                model, data.encoder, data.evaluation_sets, max_new_tokens=None, items=self.interim_items, **show
            )
        else:
            scores = cached_scores(
                model,
                data,
                max_new_tokens=self.max_new_tokens,
                with_gradient_norms=self.gradient_norms,
                **show,
            )
        self._seconds["evaluation"] += time.perf_counter() - started
        return scores

    def _metrics(self, trainer: pl.Trainer, scores: Scores) -> Metrics:
        """Metrics of a full measurement, against the reference."""
        r = self.reference
        theirs, values = (None, None) if r is None else (r.scores, r.values)
        options = {"definition": self.definition, "reference_values": values, "intervals": True}
        return _data(trainer).metrics(scores, theirs, **options) | self.ceiling

    def _load_references(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.source is None or self.reference is not None:
            if self.second_source is not None and self.source is None:
                raise UserError("A second reference needs a first: set --evaluation.reference too.")
            return
        settings: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "hidden": self._hidden(trainer)}
        load = partial(
            load_reference,
            datamodule=_data(trainer),
            device=pl_module.device,
            score=partial(self._score, trainer),
            facts=partial(evaluation_facts, datamodule=_data(trainer), **settings),
        )
        ours = scoring_facts(pl_module.network, **settings)
        self.reference = load(self.source)
        check_comparable(self.reference, ours)
        if self.reference.model is None:
            rank_zero_warn(
                f"The reference '{self.source}' does not say what its model was trained on (provenance.json), so that "
                "cannot be checked."
            )
        if self.second_source is not None:
            second = load(self.second_source)
            check_comparable(second, ours)
            self.ceiling = quality_ceiling(self.reference.scores, second.scores, self.definition)

    @staticmethod
    def _log(trainer: pl.Trainer, prefix: str, metrics: Metrics) -> None:
        if trainer.logger is not None:
            values = {f"{prefix}/{name}": result.value for name, result in metrics.items()}
            trainer.logger.log_metrics(values, step=trainer.global_step)

    def _finish(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        scores, log_dir = self._score(trainer, pl_module.network), trainer.log_dir  # both take all ranks
        if not trainer.is_global_zero:
            return
        data, r = _data(trainer), self.reference
        after = self._metrics(trainer, scores)
        before = self._metrics(trainer, self.before) if self.before else {}
        retrained = self._metrics(trainer, r.scores) if r else {}
        self._log(trainer, "metrics", after)
        judged = "after" if before else "model"
        columns = {"before": before, judged: after, "retrained": retrained}
        print_table(
            f"{data.name}, {type(pl_module).__name__}, {trainer.global_step} iterations, definition {self.definition}",
            {name: metrics for name, metrics in columns.items() if metrics},
        )
        if log_dir is None:
            return
        folder = Path(log_dir)
        facts = evaluation_facts(pl_module.network, data, self.max_new_tokens, self._hidden(trainer))
        if r is not None:
            r.save(folder / "reference.json")
        elif not self._unlearns(pl_module) or trainer.state.fn != "fit":  # it can be another run's reference
            Reference(str(folder), scores, _model_facts(trainer, pl_module), facts).save(folder / "reference.json")
        write_samples(folder / "samples.jsonl", data.evaluation_sets, self.before, scores)
        if "forget" in scores:
            if self.definition == "open_unlearning":
                write_open_unlearning_logs(folder, data, scores, after)
            pictured = {"before": self.before, judged: scores, "retrained": r.scores if r else {}}
            forget = {name: s["forget"] for name, s in pictured.items() if s}
            draw_histograms(folder / "histograms.png", forget, self.definition)
        results = {
            "definition": self.definition,
            "metrics": _as_dicts(after),
            "before": _as_dicts(before),
            "reference": r
            and {"source": r.source, "model": r.model, "evaluation": r.evaluation, "metrics": _as_dicts(retrained)},
            "history": self.history,
            "provenance": provenance(data, method=type(pl_module).__name__, steps=trainer.global_step, seed=data.seed)
            | {k: facts[k] for k in ("weights", "dtype", "max_new_tokens", "hidden_token")},
            "cost": {
                "training_seconds": self._seconds["training"],
                "evaluation_seconds": self._seconds["evaluation"],
                "gradient_evaluations": float(getattr(pl_module, "gradient_evaluations", 0.0)),
                "peak_memory_bytes": peak_memory(pl_module.device),
            },
        }
        write_json(folder / "results.json", results)
        rank_zero_info(f"Results: {folder / 'results.json'}")


def _model_facts(trainer: pl.Trainer, pl_module: Any) -> dict[str, Any] | None:
    """What the measured model was trained on: in this run, or as its folder says."""
    if trainer.state.fn == "fit":
        return provenance(_data(trainer), streams=list(pl_module.streams))
    return read_model_facts(str(pl_module.recipe.path))


def _data(trainer: pl.Trainer) -> Any:
    return trainer.datamodule  # type: ignore[attr-defined]


def _as_dicts(metrics: Metrics) -> dict[str, Any]:
    return {name: result.as_dict() for name, result in metrics.items()}
