"""Measures a model before, along and after a run, against a retrained model."""

import gc
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import nn

from ofmu_pl.data.base import PairedDataModule, data_of
from ofmu_pl.evaluation.account import Account, Example, Measured, remark_of
from ofmu_pl.evaluation.caveats import SO, guessed
from ofmu_pl.evaluation.gradient_alignment import alignment_rows, both_know, gradient_alignment
from ofmu_pl.evaluation.reference import RETRAIN, SAYING_HOW, Facts, Reference, Scored, check_comparable
from ofmu_pl.evaluation.results import as_dicts, facts_of, tell, tell_where, write_results
from ofmu_pl.evaluation.table import FinalTable, Metrics, print_table
from ofmu_pl.metrics import ImageScores, SetScores
from ofmu_pl.metrics.alignment import ALIGNMENT
from ofmu_pl.metrics.lume import official
from ofmu_pl.metrics.own import OwnMetric, check_own, with_own
from ofmu_pl.metrics.result import MetricResult, by_name
from ofmu_pl.metrics.verdicts import with_verdicts
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.provenance import weights_hash
from ofmu_pl.training.export import become_exported
from ofmu_pl.training.progress import TIMED, forecast


class Evaluation(pl.Callback, ABC):
    """Metrics before, along and after a run; ``validate`` and ``test`` only measure.

    A subclass says how a model is scored, which metrics follow from scores, and which files are written.

    Args:
        reference: Retrained model that forgetting is compared with; ``null``: none, so that metrics have no goals from
            it.
        every_n_steps: Outer iterations between two cheap measurements; ``null``: none.
        own_metrics: Metrics of your own, computed from the same scores; ``null``: none.
    """

    modality: ClassVar[Literal["text", "images"]]
    scores_class: ClassVar[type[SetScores] | type[ImageScores]]
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
        if reference == "" or not isinstance(reference, str | PathLike | nn.Module | None):
            raise UserError(f"`reference` is {reference!r}: give a retrained model's folder or hub id, or the model.")
        check_own(own_metrics)
        self.source, self.every_n_steps, self.own_metrics = reference, every_n_steps, own_metrics or []
        self.prints: Literal["short", "all"] | None = "short"  # the table at the end
        self.ending: FinalTable | None = None
        self.reference: Reference | None = None
        self.second: Reference | None = None  # one more retrained model
        self.before: Scored = {}
        self.doubt: str | None = None  # why the target may not know its rows
        self.weights: str | None = None  # hash of the model before
        self._facts: Facts | None = None  # how the model before was scored
        self.more: dict[str, Metrics] = {}  # by column
        self.told: Account | None = None
        self.seconds = {"training": 0.0, "evaluation": 0.0}
        self._mark: float | None = None
        self._ends: list[float] = []  # when the first iterations ended, in seconds of training

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse data that it cannot measure on."""
        self.check(data_of(trainer))

    def check(self, data: PairedDataModule) -> None:
        """Refuse data of the other modality, before any model is trained for it."""
        if data.modality != self.modality:
            kind = "TextEvaluation" if data.modality == "text" else "ImageEvaluation"
            raise UserError(f"`evaluation` is for {self.modality}, and '{data.name}' is not: set --evaluation {kind}.")

    @abstractmethod
    def score(self, trainer: pl.Trainer, model: nn.Module, cheap: bool = False) -> Scored:
        """Score the evaluation sets; a cheap measurement may score fewer rows."""

    @abstractmethod
    def metrics(self, trainer: pl.Trainer, scores: Scored, column: str) -> Metrics:
        """Metrics of ``before``, ``after`` (``model`` where there is no before) or ``retrained``, with goals."""

    @abstractmethod
    def interim_metrics(self, trainer: pl.Trainer, scores: Scored) -> Metrics:
        """Metrics of a cheap measurement."""

    def unknown(self, trainer: pl.Trainer, model: nn.Module, scores: Scored) -> str | None:
        """Say that a target is not shown to know its rows, here by random guesses; ``None``: it is. Takes all ranks."""
        if guessed(scores, self._guess(trainer), "forget", "retain"):
            return (
                f"The target knows its rows no better than random guesses, {SO}: give the model that was trained on "
                "them, with its template (of images its order of classes, `data.classes`, mean and std)."
            )
        return None

    @staticmethod
    def _guess(trainer: pl.Trainer) -> float:
        """Loss of random guesses, in nats."""
        module: Any = trainer.lightning_module
        return float(module.recipe.uniform_loss(module.network))

    @abstractmethod
    def load_reference(self, trainer: pl.Trainer, pl_module: Any, source: str) -> Reference:
        """Load the retrained model's scores; refuse them if they belong to other data or were made otherwise."""

    @abstractmethod
    def scoring_facts(self, trainer: pl.Trainer, model: nn.Module) -> Facts:
        """How models are scored: what two models must share, beside the rows, for their scores to be comparable."""

    def write_files(self, run: Measured) -> None:
        """Write more files beside ``results.json``; by default there are none."""

    def examples(self, trainer: pl.Trainer, scores: Scored) -> list[Example]:
        """Forgotten rows to read, with what the model said before and after; none unless texts were asked for."""
        return []

    def more_metrics(self, trainer: pl.Trainer, model: nn.Module) -> Metrics:
        """Metrics that need the model itself; takes all ranks. A retrained model is used for nothing else afterwards.

        By default there are none.
        """
        return {}

    def remark(self, trainer: pl.Trainer, metrics: Metrics) -> str | None:
        """What the table does not say by itself: what of the data nobody saw, or what has no goal."""
        r = self.reference
        told = remark_of(data_of(trainer), r is not None)
        if r is None or not guessed(r.scores, self._guess(trainer), "retain"):
            return told
        worse = f"The reference '{r.source}' is worse than chance on retained rows, so it sets no goal to go by."
        return f"{worse} {told or ''}".strip()

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Check the reference before any work, then measure the target."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        self._book("training")
        if pl_module.unlearns:
            self._require_same_scoring(self.scoring_facts(trainer, pl_module.network))
            self._load_reference(trainer, pl_module)
            if not self.before:  # a resumed run has it from its checkpoint
                self.before = self.measured(trainer, pl_module.network, "before")
                self.doubt = self.unknown(trainer, pl_module.network, self.before)
                adapted = hasattr(pl_module.network, "peft_config")  # whose hash is no file's
                self.weights = None if adapted else weights_hash(pl_module.network)
                if self.doubt:
                    rank_zero_warn(self.doubt)
                self._log(trainer, pl_module, self._all_metrics(trainer, self.before, "before"))
            if trainer.global_step:  # it was stopped before it could measure what was due, or was to end there
                self._measure(trainer, pl_module)
        self._book("evaluation")

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Make a cheap measurement every ``every_n_steps`` iterations, except after the last one."""
        if pl_module.unlearns:
            self._foretell(trainer, pl_module)
            self._measure(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Measure the model after the run, write everything, print the table."""
        pl_module.ending.settle(pl_module)
        if not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._finish(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the model as it is, for ``validate``."""
        if trainer.state.fn == "validate":
            self.on_test_end(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the model as it is, for ``test``."""
        with torch.inference_mode(False):  # a model that is made in the trainer's never has gradients
            self._load_reference(trainer, pl_module)
            self._finish(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """The scores and times that a resumed run cannot measure again."""
        self._book("training")
        before = {name: s.as_dict() for name, s in self.before.items()}
        more = {name: r.as_dict() for name, r in self.more.get("before", {}).items()}
        facts = {"facts": self._facts, "doubt": self.doubt, "weights": self.weights}
        return {"before": before, "more": more, "seconds": dict(self.seconds), **facts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""
        self.before = {name: self.scores_class.from_dict(s) for name, s in state_dict["before"].items()}
        more = {name: MetricResult.from_dict(name, entry) for name, entry in state_dict["more"].items()}
        self.more["before"] = more
        self.seconds, self._facts = state_dict["seconds"], state_dict.get("facts")
        self.doubt, self.weights = state_dict.get("doubt"), state_dict.get("weights")

    def _require_same_scoring(self, facts: Facts) -> None:
        """Refuse to score a resumed run otherwise than its model before; versions may differ."""
        then, self._facts = self._facts or facts, facts
        ours = {name: fact for name, fact in facts.items() if name != "results_version"}
        check_comparable("The model before", then, ours, "go on with the evaluation settings that the run began with")

    def _book(self, kind: str) -> None:
        """Book the time since the last call as ``training`` or ``evaluation``."""
        now = time.perf_counter()
        self.seconds[kind] += 0.0 if self._mark is None else now - self._mark
        self._mark = now

    def _foretell(self, trainer: pl.Trainer, pl_module: UnlearningModule) -> None:
        """Say how long the run will take, once its first iterations are timed."""
        left = trainer.max_steps - trainer.global_step
        if not self.prints or left <= 0 or len(self._ends) == TIMED:
            return
        self._book("training")
        self._ends.append(self.seconds["training"])
        if len(self._ends) == TIMED:
            first = self.seconds["evaluation"] if trainer.global_step == TIMED else None
            pl_module.print(forecast(self._ends, left, pl_module.period, first))

    def _measure(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Make a cheap measurement if one is due in this iteration and not made yet."""
        step, history = trainer.global_step, pl_module.record.history
        due = self.every_n_steps and step % self.every_n_steps == 0 and step != trainer.max_steps
        if not due or (history and history[-1]["step"] == step):
            return
        self._book("training")
        metrics = self.interim_metrics(trainer, self.score(trainer, pl_module.network, cheap=True))
        self._log(trainer, pl_module, metrics)
        history.append({"step": step, "metrics": as_dicts(metrics)})
        self._book("evaluation")

    def measured(self, trainer: pl.Trainer, model: nn.Module, column: str, ended: bool = False) -> Scored:
        """Score a model and measure what needs the model itself; takes all ranks.

        A model whose training has ``ended`` is measured as it is exported, but for its gradients: merged adapters have
        none.
        """
        self._book("training")
        found = gradient_alignment(trainer.lightning_module, model, data_of(trainer), self.rows)
        goal = self.reference.values.get(ALIGNMENT.name) if self.reference else None
        aligned = by_name(replace(found, target=goal)) if found else {}
        if ended:
            become_exported(trainer, trainer.lightning_module)
        scores = self.score(trainer, model)
        self.more[column] = self.more_metrics(trainer, model) | aligned
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
        gc.collect()  # its shards refer to one another in a circle
        found = self.more.setdefault("retrained", {})  # empty where the reference is a file
        both_know(found, self.reference.values, len(alignment_rows(data_of(trainer), self.rows)))

    @staticmethod
    def _log(trainer: pl.Trainer, pl_module: UnlearningModule, metrics: Metrics, *, last: bool = False) -> None:
        values = {f"metrics/{name}": result.value for name, result in metrics.items()}
        pl_module.record.log(trainer.loggers, trainer.global_step, values, last=last)

    def _finish(self, trainer: pl.Trainer, pl_module: Any) -> None:
        judged = "after" if self.before else "model"
        network = pl_module.network
        # This, the hash and log_dir take all ranks.
        scores = self.measured(trainer, network, judged, ended=trainer.state.fn == "fit")
        weights, log_dir = weights_hash(network), trainer.log_dir
        if not trainer.is_global_zero:
            return
        sides = {"before": self.before, judged: scores, "retrained": self.reference.scores if self.reference else {}}
        columns: dict[str, Metrics] = {}
        for name, side in sides.items():
            if side:
                found = self._all_metrics(trainer, side, name)
                columns[name] = found if name == "retrained" else with_verdicts(found, columns.get("before", {}))
        self._log(trainer, pl_module, columns[judged], last=True)
        caveats = {"forgotten": self.doubt} if self.doubt else {}
        if self.before and guessed(scores, self._guess(trainer), "retain"):
            caveats["kept"] = "What must stay is lost: the model knows it no better than random guesses."
        title = f"{data_of(trainer).name}, {type(pl_module).__name__}, {trainer.global_step} iterations"
        title += "" if self.definition == "exact" else f", definition {self.definition}"
        self.ending = FinalTable(title, columns, self.remark(trainer, columns[judged]), caveats)
        if log_dir is not None:
            run = Measured(trainer, pl_module, weights, self.weights, Path(log_dir), scores, columns, judged)
            self.write_files(run)
            facts = facts_of(run, self.scoring_facts(trainer, network), self.second)
            if self.before:
                self.told = tell(run, facts, self.examples(trainer, scores), self.rows, list(caveats.values()))
            write_results(run, facts, self.reference, self.definition, self.ending.said, self.seconds)
        # Last: an output that takes nothing any more, as of a closed terminal, must cost no results.
        if self.prints:
            print_table(self.ending, whole=self.prints == "all")
        if log_dir is not None:
            tell_where(run, unlearned=bool(self.before))
