"""Unlearning metrics: pure functions, and their state across ranks. Needs neither lightning nor transformers.

A name is imported when it is asked for, so that one metric does not import what others need (torch, sklearn).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ofmu_pl.support.lazy import lazy

if TYPE_CHECKING:
    from ofmu_pl.metrics.alignment import mean_cosine as mean_cosine
    from ofmu_pl.metrics.attacks import FEATURES as FEATURES
    from ofmu_pl.metrics.attacks import attack_quality as attack_quality
    from ofmu_pl.metrics.attacks import mia_efficacy as mia_efficacy
    from ofmu_pl.metrics.bootstrap import interval as interval
    from ofmu_pl.metrics.definitions import DEFINITIONS as DEFINITIONS
    from ofmu_pl.metrics.definitions import Definition as Definition
    from ofmu_pl.metrics.definitions import DefinitionName as DefinitionName
    from ofmu_pl.metrics.functional import *  # noqa: F403
    from ofmu_pl.metrics.image_scores import ImageScores as ImageScores
    from ofmu_pl.metrics.image_scores import confusion as confusion
    from ofmu_pl.metrics.images import ImageUnlearning as ImageUnlearning
    from ofmu_pl.metrics.items import ItemMean as ItemMean
    from ofmu_pl.metrics.membership import auc as auc
    from ofmu_pl.metrics.membership import membership_closeness as membership_closeness
    from ofmu_pl.metrics.membership import min_k as min_k
    from ofmu_pl.metrics.membership import privacy_leakage as privacy_leakage
    from ofmu_pl.metrics.own import OwnMetric as OwnMetric
    from ofmu_pl.metrics.result import Metric as Metric
    from ofmu_pl.metrics.result import MetricResult as MetricResult
    from ofmu_pl.metrics.rouge import *  # noqa: F403
    from ofmu_pl.metrics.sampling import at_least_once as at_least_once
    from ofmu_pl.metrics.sampling import leak_at_k as leak_at_k
    from ofmu_pl.metrics.scores import Scores as Scores
    from ofmu_pl.metrics.scores import SetScores as SetScores
    from ofmu_pl.metrics.tofu import tofu_metrics as tofu_metrics
    from ofmu_pl.metrics.vision import overall_scores as overall_scores
    from ofmu_pl.metrics.vision import vision_metrics as vision_metrics
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
