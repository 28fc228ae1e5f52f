"""RWKU's metrics: how much of the answers a model still gives at each level, about its subjects and about others."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ofmu_pl.metrics.own_rows import asked_metrics
from ofmu_pl.metrics.result import Metric, MetricResult
from ofmu_pl.metrics.scores import Scores
from ofmu_pl.support.sets import PROBE

_ASKED = {
    1: "Asked to fill the blank in a sentence about {rows}, the model says {value} of the missing words.",
    2: "Asked in other words about {rows}, the model says {value} of the answer.",
    3: "Asked about {rows} by somebody who wants the answer all the same, the model says {value} of it.",
}
_of = partial(Metric, column=1)
ASKED = {
    f"{PROBE}level1_forget": _of("forget_level1", higher_is_better=False, group="forgotten", says=_ASKED[1]),
    f"{PROBE}level2_forget": _of("forget_level2", higher_is_better=False, group="forgotten", says=_ASKED[2]),
    f"{PROBE}level3_forget": _of("forget_level3", higher_is_better=False, group="forgotten", says=_ASKED[3]),
    f"{PROBE}level1_retain": _of("neighbor_level1", higher_is_better=True, group="kept", says=_ASKED[1]),
    f"{PROBE}level2_retain": _of("neighbor_level2", higher_is_better=True, group="kept", says=_ASKED[2]),
}
"""Metrics by evaluation set."""
RELEASED = {
    name: replace(metric, name=f"{metric.name}_released", column=None, says=None) for name, metric in ASKED.items()
}
"""The same as the released program counts words."""


def rwku_metrics(scores: Scores, reference: Scores | None = None, **options: Any) -> dict[str, MetricResult]:
    """ROUGE-L recall by level and side, and the metrics of your documents.

    ``forget_level1`` to ``forget_level3`` and ``neighbor_level1`` and ``neighbor_level2`` are means over questions of
    the ROUGE-L recall of the first line of the greedy answer (``rouge_l_recall``, as everywhere here), from 0 to 1 (the
    paper prints a hundred times as much). Their forms ``_released`` count words as the released program does
    (``rouge_l_recall_of_words``), by which an answer in other case, or with a comma behind it, is no answer. The
    arguments are those of ``asked_metrics``.
    """
    return asked_metrics(_answered, scores, reference, **options)


def _answered(scores: Scores) -> dict[Metric, np.ndarray | None]:
    asked = [name for name in ASKED if name in scores]
    recall = {ASKED[name]: scores[name].rouge for name in asked}
    return recall | {RELEASED[name]: scores[name].rouge_words for name in asked}
