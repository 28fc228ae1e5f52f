"""Unlearning metrics: pure functions, and their state across ranks. Needs neither lightning nor transformers."""

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
from ofmu_pl.metrics.items import ItemMean
from ofmu_pl.metrics.tofu import MetricResult, Scores, SetScores, tofu_metrics

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
