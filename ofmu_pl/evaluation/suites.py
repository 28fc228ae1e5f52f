"""Suites: the functions that compute the metrics of a text benchmark, by the name that its data module gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ofmu_pl.metrics import MetricResult, Scores, tofu_metrics
from ofmu_pl.metrics.choice import choice_metrics
from ofmu_pl.metrics.documents import document_metrics
from ofmu_pl.metrics.lume import lume_metrics
from ofmu_pl.metrics.muse import STORED_AUC, muse_metrics
from ofmu_pl.metrics.own_rows import own_rows_metrics
from ofmu_pl.metrics.rwku import rwku_metrics

Suite = Callable[..., dict[str, MetricResult]]
"""A function of the model's scores by evaluation set, the retrained model's or ``None``, and ``definition``,
``reference_values`` and ``intervals`` as in ``tofu_metrics``; it gives every metric that the scores allow."""


def documents_and_choices(scores: Scores, reference: Scores | None = None, **options: Any) -> dict[str, MetricResult]:
    """Compute accuracy and efficacy of multiple choice, and what is still known of documents."""
    return choice_metrics(scores, reference, **options) | document_metrics(scores, reference, **options)


SUITES: dict[str, Suite] = {
    "questions": tofu_metrics,
    "documents": documents_and_choices,
    "rows": own_rows_metrics,
    "lume": lume_metrics,
    "muse": muse_metrics,
    "rwku": rwku_metrics,
    **{f"muse_{corpus}": partial(muse_metrics, stored_auc=auc) for corpus, auc in STORED_AUC.items()},
}
"""Suites by the ``suite`` of a ``TextDataModule``."""
