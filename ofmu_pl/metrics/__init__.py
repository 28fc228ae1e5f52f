"""Unlearning metrics: pure functions, and their state across ranks. Needs neither lightning nor transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ofmu_pl.metrics.attacks import FEATURES, attack_quality, mia_efficacy
from ofmu_pl.metrics.bootstrap import interval
from ofmu_pl.metrics.definitions import DEFINITIONS, Definition, DefinitionName
from ofmu_pl.metrics.functional import (
    closer_to_one,
    extraction_strength,
    forget_quality,
    harmonic_mean,
    log_truth_ratio,
    normalised_probability,
    overall_score,
    probability,
    rouge_l_recall,
    true_better,
    truth_probability,
)
from ofmu_pl.metrics.membership import auc, membership_closeness, min_k, privacy_leakage
from ofmu_pl.metrics.scores import Scores, SetScores
from ofmu_pl.metrics.tofu import MetricResult, tofu_metrics
from ofmu_pl.metrics.vision import ImageScores, confusion, overall_scores, vision_metrics

if TYPE_CHECKING:
    from ofmu_pl.metrics.images import ImageUnlearning
    from ofmu_pl.metrics.items import ItemMean

__all__ = [
    "DEFINITIONS",
    "FEATURES",
    "Definition",
    "DefinitionName",
    "ImageScores",
    "ImageUnlearning",
    "ItemMean",
    "MetricResult",
    "Scores",
    "SetScores",
    "attack_quality",
    "auc",
    "closer_to_one",
    "confusion",
    "extraction_strength",
    "forget_quality",
    "harmonic_mean",
    "interval",
    "log_truth_ratio",
    "membership_closeness",
    "mia_efficacy",
    "min_k",
    "normalised_probability",
    "overall_score",
    "overall_scores",
    "privacy_leakage",
    "probability",
    "rouge_l_recall",
    "tofu_metrics",
    "true_better",
    "truth_probability",
    "vision_metrics",
]


def __getattr__(name: str) -> Any:
    """Import the torchmetrics classes when they are asked for: torchmetrics imports transformers if it is installed."""
    if name == "ItemMean":
        from ofmu_pl.metrics.items import ItemMean

        return ItemMean
    if name == "ImageUnlearning":
        from ofmu_pl.metrics.images import ImageUnlearning

        return ImageUnlearning
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
