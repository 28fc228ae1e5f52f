"""Unlearning metrics: pure functions, and their state across ranks. Needs neither lightning nor transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ofmu_pl.metrics.functional import (
    closer_to_one,
    forget_quality,
    log_truth_ratio,
    model_utility,
    normalised_probability,
    probability,
    rouge_l_recall,
    true_better,
)
from ofmu_pl.metrics.tofu import MetricResult, Scores, SetScores, tofu_metrics

if TYPE_CHECKING:
    from ofmu_pl.metrics.items import ItemMean

__all__ = [
    "ItemMean",
    "MetricResult",
    "Scores",
    "SetScores",
    "closer_to_one",
    "forget_quality",
    "log_truth_ratio",
    "model_utility",
    "normalised_probability",
    "probability",
    "rouge_l_recall",
    "tofu_metrics",
    "true_better",
]


def __getattr__(name: str) -> Any:
    """Import ``ItemMean`` when it is asked for: torchmetrics imports transformers wherever that is installed."""
    if name == "ItemMean":
        from ofmu_pl.metrics.items import ItemMean

        return ItemMean
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
