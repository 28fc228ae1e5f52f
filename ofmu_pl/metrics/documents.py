"""Metrics of texts without questions: what a model still knows of the documents themselves, token by token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ofmu_pl.metrics import functional as F
from ofmu_pl.metrics.definitions import DEFINITIONS, Definition
from ofmu_pl.metrics.result import Metric, MetricResult
from ofmu_pl.metrics.scores import Scores, SetScores
from ofmu_pl.support.sets import forgets, is_document, is_request

_SAYS = {
    "loss": "On {rows}, the text surprises the model by {value} a token, where 0 is knowing it by heart.",
    "Prob": "On {rows}, the model gives a word of the text a probability of {value} on average.",
    "extraction_strength": "On {rows}, given the beginning of a text, the model completes the last {value} of it "
    "without a mistake.",
    "exact_memorization": "On {rows}, shown the text up to a word, the model's first guess at that word is right in "
    "{value} of cases.",
}
DECLARED = {
    metric.name: replace(metric, says=_SAYS[metric.name.split("_doc_")[1]])
    for metric in (
        Metric("forget_doc_loss", higher_is_better=True, unit="nats", group="forgotten"),
        Metric("forget_doc_Prob", higher_is_better=False, group="forgotten", column=1),
        Metric("forget_doc_extraction_strength", higher_is_better=False, group="forgotten", column=1),
        Metric("forget_doc_exact_memorization", higher_is_better=False, group="forgotten"),
        Metric("retain_doc_loss", higher_is_better=False, unit="nats", group="kept"),
        Metric("retain_doc_Prob", higher_is_better=True, group="kept", column=1),
        Metric("retain_doc_extraction_strength", higher_is_better=True, group="kept"),
        Metric("retain_doc_exact_memorization", higher_is_better=True, group="kept"),
        Metric("holdout_doc_loss", higher_is_better=False, unit="nats", group="unseen"),
        Metric("holdout_doc_Prob", higher_is_better=True, group="unseen"),
        Metric("holdout_doc_extraction_strength", higher_is_better=True, group="unseen"),
        Metric("holdout_doc_exact_memorization", higher_is_better=True, group="unseen"),
    )
}


def document_metrics(
    scores: Scores, reference: Scores | None = None, definition: str = "exact", intervals: bool = False, **_: Any
) -> dict[str, MetricResult]:
    """Loss, probability, extraction strength and exact memorisation of pieces of text.

    They are TOFU's metrics of the same names, with the whole piece of text but its first token in the place of the
    answer: how much of it greedy decoding would complete, and how many of its tokens are the likeliest ones after the
    true ones. Goals on the forget side are the retrained model's values, or without one those of ``holdout_doc``.
    """
    d, results = DEFINITIONS[definition], {}
    for name in filter(is_document, scores):
        goal = reference.get(name) if reference else scores.get("holdout_doc")
        wanted = _values(goal, d) if goal is not None and forgets(name) else {}
        for metric, values in _values(scores[name], d).items():
            results[f"{name}_{metric}"] = _declared(name, metric).of_items(
                values, wanted.get(metric), definition, intervals, same_items=bool(reference)
            )
    return results


def _declared(name: str, metric: str) -> Metric:
    if is_request(name):
        of_forget = DECLARED[f"forget_doc_{metric}"]
        return of_forget.of(name, "forget_doc", group="requests", column=None, family=name)
    return DECLARED[f"{name}_{metric}"]


def _values(s: SetScores, d: Definition) -> dict[str, np.ndarray]:
    """Values of each piece, (N,) each; the loss in nats per token."""
    values = {"loss": s.answer_loss, "Prob": F.probability(s.answer_loss)}
    if s.tokens is not None and s.suffix is not None and s.correct is not None:
        values["extraction_strength"] = F.extraction_strength(s.suffix, s.tokens, d.extraction_floor)
        values["exact_memorization"] = s.correct / s.tokens
    return values
