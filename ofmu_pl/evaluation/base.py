"""Measures a model before, along and after a run, against a retrained model, and writes what it found."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from ofmu_pl.data.base import data_of
from ofmu_pl.evaluation.account import Account, Example, account
from ofmu_pl.evaluation.audit import write_audit
from ofmu_pl.evaluation.card import write_card
from ofmu_pl.evaluation.gradient_alignment import ROWS, gradient_alignment
from ofmu_pl.evaluation.reference import RETRAIN, SAYING_HOW, Facts, Reference, worse_than_chance
from ofmu_pl.evaluation.table import Ending, Metrics, print_table
from ofmu_pl.evaluation.untested import remark_of
from ofmu_pl.metrics.alignment import ALIGNMENT
from ofmu_pl.metrics.lume import official
from ofmu_pl.metrics.own import OwnMetric, check_own, with_own
from ofmu_pl.metrics.result import MetricResult, by_name
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.pages import AUDIT
from ofmu_pl.support.provenance import STARTED_IN, provenance, weights_hash
from ofmu_pl.support.records import RESULTS, Cost, Entries, Interim, ReferenceRecord, Results
from ofmu_pl.training.record import peak_memory

Scored = dict[str, Any]
"""Scores by evaluation set: ``SetScores`` of text, ``ImageScores`` of images."""


class Evaluation(pl.Callback, ABC):
    """Metrics before, along and after a run; ``validate`` and ``test`` only measure.

    A subclass says how a model is scored (set by set, item by item), which metrics follow from scores, and which files
    are written.

    Args:
        reference: Retrained model that forgetting is compared with; ``null``: none, so that metrics have no goals from
            it.
        every_n_steps: Outer iterations between two cheap measurements; ``null``: none.
        own_metrics: Metrics of your own, computed from the same scores; ``null``: none.

    Raises:
        UserError: Something else is given as one of these.
    """

    modality: ClassVar[Literal["text", "images"]]
    """The kind of data that it evaluates."""
    scores_class: ClassVar[Any]
    """Class of the scores of one set, with ``as_dict`` and ``from_dict``."""
    definition: str = "exact"
    rows: int | None = None
    """Most rows of a set that are scored; ``None``: all."""

    def __init__(
        self,
        reference: str | None = None,
        every_n_steps: int | None = None,
        own_metrics: list[OwnMetric] | None = None,
    ) -> None:
        check_range(1, whole=True, every_n_steps=every_n_steps)
        # A model in Python alone
        if reference == "" or not isinstance(reference, str | PathLike | nn.Module | None):
            raise UserError(f"`reference` is {reference!r}: give a retrained model's folder or hub id, or the model.")
        check_own(own_metrics)
        self.source, self.every_n_steps, self.own_metrics = reference, every_n_steps, own_metrics or []
        self.prints = True  # a table at the end
        self.ending: Ending | None = None
        self.reference: Reference | None = None
        self.before: Scored = {}
        self.more: dict[str, Metrics] = {}  # by column
        self.told: Account | None = None
        self._seconds = {"training": 0.0, "evaluation": 0.0}
        self._mark: float | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse data of the other modality.

        Raises:
            UserError: The data holds images and the evaluation is for text, or the other way round.
        """
        data = data_of(trainer)
        if data.modality != self.modality:
            kind = {"text": "TextEvaluation", "images": "ImageEvaluation"}[data.modality]
            raise UserError(
                f"{type(self).__name__} is for {self.modality}, and '{data.name}' holds {data.modality}: set "
                f"--evaluation {kind}."
            )

    # What a subclass says ---------------------------------------------------------------------------------------------

    @abstractmethod
    def score(self, trainer: pl.Trainer, model: nn.Module, cheap: bool = False) -> Scored:
        """Score the evaluation sets; a cheap measurement may score fewer rows."""

    @abstractmethod
    def metrics(self, trainer: pl.Trainer, scores: Scored, column: str) -> Metrics:
        """Metrics of a full measurement, against the reference.

        Args:
            trainer: Trainer of the run.
            scores: By evaluation set.
            column: Whose they are: ``before``, ``after`` (``model``, where nothing was trained) or ``retrained``.
        """

    @abstractmethod
    def interim_metrics(self, trainer: pl.Trainer, scores: Scored) -> Metrics:
        """Metrics of a cheap measurement."""

    @abstractmethod
    def load_reference(self, trainer: pl.Trainer, pl_module: Any, source: str) -> Reference:
        """Load the retrained model's scores; refuse them if they belong to other data or were made otherwise."""

    @abstractmethod
    def scoring_facts(self, trainer: pl.Trainer, model: nn.Module) -> Facts:
        """How models are scored: what two models must share, beside the rows, for their scores to be comparable."""

    @abstractmethod
    def spread(self, scores: Scored) -> dict[str, np.ndarray]:
        """Values of single rows for histograms, by what they are."""

    def write_files(
        self,
        trainer: pl.Trainer,
        pl_module: UnlearningModule,
        network: nn.Module,
        folder: Path,
        scores: Scored,
        columns: dict[str, Metrics],
    ) -> None:
        """Write more files beside ``results.json``; by default there are none."""

    def examples(self, trainer: pl.Trainer, scores: Scored) -> list[Example]:
        """Forgotten rows to read, with what the model said before and after; none unless texts were asked for."""
        return []

    def more_metrics(self, trainer: pl.Trainer, model: nn.Module) -> Metrics:
        """Metrics that need the model itself; takes all ranks. A retrained model is used for nothing else afterwards.

        By default it is how far the gradients of forget rows agree, with the retrained model's value as its target.
        """
        found = gradient_alignment(trainer.lightning_module, model, data_of(trainer), self.rows)
        goal = self.reference.values.get(ALIGNMENT.name) if self.reference else None
        return by_name(replace(found, target=goal)) if found else {}

    def remark(self, trainer: pl.Trainer, metrics: Metrics) -> str | None:
        """What the table does not say by itself: what of the data nobody saw, or what has no goal."""
        method: Any = trainer.lightning_module
        told, r = remark_of(data_of(trainer), self.reference is not None), self.reference
        if r is None or not worse_than_chance(r.scores, method.recipe.uniform_loss(method.network)):
            return told
        worse = f"The reference '{r.source}' is worse than chance on retained rows, so it sets no goal to go by."
        return f"{worse} {told or ''}".strip()

    # Around training -------------------------------------------------------------------------------------------------

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Check the reference before any work, then measure the target."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        self._book("training")
        if unlearns(pl_module):
            self._load_reference(trainer, pl_module)
            if not self.before:  # a resumed run has it from its checkpoint
                model = pl_module.whole_network()
                self.before = self._timed_score(trainer, model)
                self.more["before"] = self.more_metrics(trainer, model)
                metrics = self._all_metrics(trainer, self.before, "before")
                self._log(trainer, pl_module, metrics)
            if trainer.global_step:  # it was stopped before it could measure what was due, or was to end there
                self._measure(trainer, pl_module)
        self._book("evaluation")

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Make a cheap measurement every ``every_n_steps`` iterations, except after the last one."""
        if unlearns(pl_module):
            self._measure(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the model after the run, write everything, print the table."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        self._finish(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the model as it is, for ``validate``."""
        if trainer.state.fn == "validate":
            self._judge(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the model as it is, for ``test``."""
        self._judge(trainer, pl_module)

    def _judge(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure as ``fit`` does: a model that is made in the trainer's inference mode never has gradients."""
        with torch.inference_mode(False):
            self._load_reference(trainer, pl_module)
            self._finish(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """The scores and times that a resumed run cannot measure again."""
        self._book("training")
        before = {name: s.as_dict() for name, s in self.before.items()}
        more = {name: r.as_dict() for name, r in self.more.get("before", {}).items()}
        return {"before": before, "more": more, "seconds": dict(self._seconds)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""
        self.before = {name: self.scores_class.from_dict(s) for name, s in state_dict["before"].items()}
        more = state_dict.get("more", {})  # of 0.2.0 on
        self.more["before"] = {name: MetricResult.from_dict(name, entry) for name, entry in more.items()}
        self._seconds = state_dict["seconds"]

    # Measuring -------------------------------------------------------------------------------------------------------

    def _book(self, kind: str) -> None:
        """Book the time since the last call as ``training`` or ``evaluation``."""
        now = time.perf_counter()
        self._seconds[kind] += 0.0 if self._mark is None else now - self._mark
        self._mark = now

    def _measure(self, trainer: pl.Trainer, pl_module: UnlearningModule) -> None:
        """Make a cheap measurement if one is due in this iteration and not made yet."""
        step, history = trainer.global_step, pl_module.record.history
        due = self.every_n_steps and step % self.every_n_steps == 0 and step != trainer.max_steps
        if not due or (history and history[-1]["step"] == step):
            return
        metrics = self.interim_metrics(trainer, self._timed_score(trainer, pl_module.whole_network(), cheap=True))
        self._log(trainer, pl_module, metrics)
        history.append({"step": step, "metrics": _as_dicts(metrics)})
        self._book("evaluation")

    def _timed_score(self, trainer: pl.Trainer, model: nn.Module, cheap: bool = False) -> Scored:
        self._book("training")
        scores = self.score(trainer, model, cheap)
        self._book("evaluation")
        return scores

    def _all_metrics(self, trainer: pl.Trainer, scores: Scored, column: str) -> Metrics:
        theirs = self.reference.scores if self.reference else None
        found = with_own(self.metrics(trainer, scores, column), self.own_metrics, scores, theirs)
        found |= self.more.get(column, {})
        return found | official(found)

    def _load_reference(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.source == RETRAIN:  # the command line has put the model's folder in its place, if it could
            raise UserError(
                f"The reference '{RETRAIN}' needs to know how: give {SAYING_HOW[self.modality]}, or give "
                "--evaluation.reference the retrained model's folder."
            )
        if self.source is None or self.reference is not None:
            return
        self.reference = self.load_reference(trainer, pl_module, self.source)
        found = self.more.setdefault("retrained", {})  # empty where the reference is a file
        values, name = self.reference.values, ALIGNMENT.name
        if name in found:
            values[name] = found[name].value
        elif name in values:
            rows = len(data_of(trainer).splits["forget"])
            found[name] = ALIGNMENT.result(values[name], min(ROWS, self.rows or ROWS, rows))

    @staticmethod
    def _log(trainer: pl.Trainer, pl_module: UnlearningModule, metrics: Metrics, *, last: bool = False) -> None:
        values = {f"metrics/{name}": result.value for name, result in metrics.items()}
        pl_module.record.log(trainer.loggers, trainer.global_step, values, last=last)

    def _log_histograms(self, trainer: pl.Trainer, sides: dict[str, Scored]) -> None:
        """Log what models make of single rows, which TensorBoard alone can show."""
        for logger in trainer.loggers:
            if not isinstance(logger, TensorBoardLogger):
                continue
            for side, scores in sides.items():
                for name, values in self.spread(scores).items():
                    finite = values[np.isfinite(values)]
                    if len(finite):
                        logger.experiment.add_histogram(f"{name}/{side}", finite, trainer.global_step)

    def _finish(self, trainer: pl.Trainer, pl_module: Any) -> None:
        network = pl_module.whole_network()  # this, scores and log_dir take all ranks
        scores, log_dir = self._timed_score(trainer, network), trainer.log_dir
        judged = "after" if self.before else "model"
        self.more[judged] = self.more_metrics(trainer, network)
        self._book("evaluation")
        if not trainer.is_global_zero:
            return
        data, r = data_of(trainer), self.reference
        sides = {"before": self.before, judged: scores, "retrained": r.scores if r else {}}
        sides = {name: s for name, s in sides.items() if s}
        columns = {name: self._all_metrics(trainer, s, name) for name, s in sides.items()}
        self._log(trainer, pl_module, columns[judged], last=True)
        remark = self.remark(trainer, columns[judged])
        if log_dir is not None:
            self._write(trainer, pl_module, network, Path(log_dir), scores, columns, remark)
        self._log_histograms(trainer, sides)
        # Last: an output that takes nothing any more, as of a closed terminal, must cost no results.
        title = f"{data.name}, {type(pl_module).__name__}, {trainer.global_step} iterations"
        self.ending = Ending(f"{title}, definition {self.definition}", columns, remark)
        if self.prints:
            print_table(*self.ending)
        if log_dir is not None:
            rank_zero_info(f"Results: {Path(log_dir) / RESULTS}")
            if self.before:
                attack = f"attack --config ofmu_pl:attacks.yaml --runs {log_dir}"
                then = attack if self.modality == "text" else f"report {Path(log_dir).parents[1]}"
                rank_zero_info(f"Page to sign: {Path(log_dir) / AUDIT}\nNext: ofmu_pl {then}")

    def _write(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        network: nn.Module,
        folder: Path,
        scores: Scored,
        columns: dict[str, Metrics],
        remark: str | None,
    ) -> None:
        """Write the run's files, ``results.json`` last."""
        data, r = data_of(trainer), self.reference
        judged = "after" if self.before else "model"
        self.write_files(trainer, pl_module, network, folder, scores, columns)
        facts = provenance(data, method=type(pl_module).__name__, steps=trainer.global_step, seed=data.seed)
        facts |= {"weights": weights_hash(network), **self.scoring_facts(trainer, network)}
        if self.before:
            facts |= {"target": str(pl_module.recipe.path), STARTED_IN: os.path.relpath(".", folder)}  # for attacks
            examples = self.examples(trainer, scores)
            self.told = account(trainer, pl_module, folder, columns, facts, examples, self.rows)
            write_card(self.told)
            write_audit(folder / AUDIT, self.told)
        results = Results(
            definition=self.definition,
            metrics=_as_dicts(columns[judged]),
            before=_as_dicts(columns.get("before", {})),
            reference=ReferenceRecord(r.source, r.model, r.evaluation, _as_dicts(columns["retrained"])) if r else None,
            history=[Interim(**entry) for entry in pl_module.record.history],
            curves=pl_module.record.curves,
            data={name: asdict(lengths) for name, lengths in data.lengths.items()},
            remark=remark,
            provenance=facts,
            cost=Cost(
                training_seconds=self._seconds["training"],
                evaluation_seconds=self._seconds["evaluation"],
                gradient_evaluations=float(getattr(pl_module, "gradient_evaluations", 0.0)),
                peak_memory_bytes=peak_memory(pl_module.device),
            ),
        )
        results.write(folder / RESULTS)


def unlearns(pl_module: pl.LightningModule) -> bool:
    """Whether the method makes a model forget, so that there are a model before and a reference."""
    return bool(getattr(pl_module, "unlearns", True))


def _as_dicts(metrics: Metrics) -> Entries:
    return {name: result.as_dict() for name, result in metrics.items()}
