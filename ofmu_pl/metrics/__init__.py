"""Unlearning metrics: pure functions, and their state across ranks. Needs neither lightning nor transformers.

A name is imported when it is asked for, so that one metric does not wait for what the others need (torch, sklearn).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ofmu_pl.support.lazy import importer

if TYPE_CHECKING:
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
    from ofmu_pl.metrics.image_scores import ImageScores, confusion
    from ofmu_pl.metrics.images import ImageUnlearning
    from ofmu_pl.metrics.items import ItemMean
    from ofmu_pl.metrics.membership import auc, membership_closeness, min_k, privacy_leakage
    from ofmu_pl.metrics.result import Metric, MetricResult
    from ofmu_pl.metrics.scores import Scores, SetScores
    from ofmu_pl.metrics.tofu import tofu_metrics
    from ofmu_pl.metrics.vision import overall_scores, vision_metrics

__all__ = [
    "DEFINITIONS",
    "FEATURES",
    "Definition",
    "DefinitionName",
    "ImageScores",
    "ImageUnlearning",
    "ItemMean",
    "Metric",
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

_NAMES = {
    "attacks": "FEATURES attack_quality mia_efficacy",
    "bootstrap": "interval",
    "definitions": "DEFINITIONS Definition DefinitionName",
    "functional": "closer_to_one extraction_strength forget_quality harmonic_mean log_truth_ratio "
    "normalised_probability overall_score probability rouge_l_recall true_better truth_probability",
    "image_scores": "ImageScores confusion",
    "images": "ImageUnlearning",
    "items": "ItemMean",
    "membership": "auc membership_closeness min_k privacy_leakage",
    "result": "Metric MetricResult",
    "scores": "Scores SetScores",
    "tofu": "tofu_metrics",
    "vision": "overall_scores vision_metrics",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker would believe that there is any name
    __getattr__ = importer(__name__, _HOMES)
