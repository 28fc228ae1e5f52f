"""What an evaluation must say to measure a model: how rows are scored, which metrics follow, which files are left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl

from ofmu_pl.data.base import data_of
from ofmu_pl.evaluation.account import Example
from ofmu_pl.evaluation.gradient_alignment import gradient_alignment
from ofmu_pl.evaluation.reference import Reference, worse_than_chance
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.evaluation.untested import remark_of
from ofmu_pl.metrics.alignment import ALIGNMENT
from ofmu_pl.metrics.result import by_name


class Measures(ABC):
    """How a model is scored (set by set, item by item), which metrics follow from scores, and which files are written.

    ``Evaluation`` calls it before, along and after a run.
    """

    modality: ClassVar[Literal["text", "images"]]
    """The kind of data that it evaluates."""
    definition: str = "exact"
    scores_class: ClassVar[Any]
    """Class of the scores of one set, with ``as_dict`` and ``from_dict``."""
    rows: int | None = None
    """Most rows of a set that are scored; ``None``: all."""
    reference: Reference | None = None
    """The retrained model's scores, once they are loaded."""

    @abstractmethod
    def score(self, trainer: pl.Trainer, model: Any, cheap: bool = False) -> dict[str, Any]:
        """Score the evaluation sets; a cheap measurement may score fewer rows."""

    @abstractmethod
    def metrics(self, trainer: pl.Trainer, scores: dict[str, Any]) -> Metrics:
        """Metrics of a full measurement, against the reference."""

    @abstractmethod
    def interim_metrics(self, trainer: pl.Trainer, scores: dict[str, Any]) -> Metrics:
        """Metrics of a cheap measurement."""

    @abstractmethod
    def load_reference(self, trainer: pl.Trainer, pl_module: Any, source: str) -> Reference:
        """Load the retrained model's scores; refuse them if they belong to other data or were made otherwise."""

    @abstractmethod
    def scoring_facts(self, trainer: pl.Trainer, model: Any) -> dict[str, Any]:
        """How models are scored: what two models must share, beside the rows, for their scores to be comparable."""

    def more_metrics(self, trainer: pl.Trainer, model: Any) -> Metrics:
        """Metrics that no scores give, since they need the model itself; takes all ranks.

        By default it is how far the gradients of forget rows agree, with the retrained model's value as its target.

        Args:
            trainer: Trainer of the run.
            model: The model, whole; a retrained one is used for nothing else afterwards.
        """
        found = gradient_alignment(trainer.lightning_module, model, data_of(trainer), self.rows)
        goal = self.reference.values.get(ALIGNMENT.name) if self.reference else None
        return by_name(replace(found, target=goal)) if found else {}

    def remark(self, trainer: pl.Trainer, metrics: Metrics) -> str | None:
        """What the table does not say by itself: what of the data nobody saw, or what has no goal.

        Args:
            trainer: Trainer of the run.
            metrics: Metrics of the model that is judged.
        """
        method: Any = trainer.lightning_module
        told, r = remark_of(data_of(trainer), self.reference is not None), self.reference
        if r is None or not worse_than_chance(r.scores, method.recipe.uniform_loss(method.network)):
            return told
        worse = f"The reference '{r.source}' is worse than chance on retained rows, so it sets no goal to go by."
        return f"{worse} {told or ''}".strip()

    @abstractmethod
    def write_files(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        network: Any,
        folder: Path,
        scores: dict[str, Any],
        columns: dict[str, Metrics],
    ) -> None:
        """Write more files beside ``results.json``.

        Args:
            trainer: Trainer of the run.
            pl_module: The method.
            network: The method's network, whole.
            folder: Folder of the files.
            scores: Scores of the model after the run.
            columns: Metrics ``before``, ``after`` (or of the ``model``, where nothing was trained), ``retrained``.
        """

    def examples(self, trainer: pl.Trainer, scores: dict[str, Any]) -> list[Example]:
        """Forgotten rows to read, with what the model said before and after; none unless texts were asked for."""
        return []
