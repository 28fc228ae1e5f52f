"""Metrics of texts without questions: what a model still knows of the documents themselves, token by token."""

from functools import partial
from itertools import product

import numpy as np

from ofmu_pl.metrics import functional as F
from ofmu_pl.metrics.definitions import DEFINITIONS, Definition
from ofmu_pl.metrics.result import Metric, MetricResult
from ofmu_pl.metrics.scores import Scores, SetScores
from ofmu_pl.support.sets import DOCUMENTS, forgets, is_document, is_request

_forgotten = partial(Metric, higher_is_better=False, group="forgotten")
LOSS = _forgotten(
    "forget_doc_loss",
    higher_is_better=True,
    unit="nats",
    says="On {rows}, the text surprises the model by {value} a token, where 0 is knowing it by heart.",
)
PROBABILITY = _forgotten(
    "forget_doc_Prob",
    column=1,
    says="On {rows}, the model gives a word of the text a probability of {value} on average.",
)
EXTRACTION_STRENGTH = _forgotten(
    "forget_doc_extraction_strength",
    column=1,
    says="On {rows}, given the beginning of a text, the model completes the last {value} of it without a mistake.",
)
EXACT_MEMORIZATION = _forgotten(
    "forget_doc_exact_memorization",
    says="On {rows}, shown the text up to a word, the model's first guess at that word is right in {value} of cases.",
)


def _of_set(metric: Metric, name: str) -> Metric:
    """A metric of forget documents as one of another set of documents."""
    if name == "forget_doc":
        return metric
    if is_request(name):
        return metric.of(name, "forget_doc", group="requests", column=None, family=name)
    column = 1 if (metric, name) == (PROBABILITY, "retain_doc") else None
    group, upwards = "kept" if name == "retain_doc" else "unseen", not metric.higher_is_better
    return metric.of(name, "forget_doc", group=group, column=column, higher_is_better=upwards)


DECLARED = [
    _of_set(metric, name)
    for name, metric in product(DOCUMENTS, (LOSS, PROBABILITY, EXTRACTION_STRENGTH, EXACT_MEMORIZATION))
]


def document_metrics(
    scores: Scores, reference: Scores | None = None, definition: str = "exact", intervals: bool = False, **_: object
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
            own = _of_set(metric, name)
            goals, same = wanted.get(metric), bool(reference)
            results[own.name] = own.of_items(values, goals, definition, intervals, same_items=same)
    return results


def _values(s: SetScores, d: Definition) -> dict[Metric, np.ndarray]:
    """Values of each piece, (N,) each; the loss in nats per token."""
    values = {LOSS: s.answer_loss, PROBABILITY: F.probability(s.answer_loss)}
    if s.tokens is not None and s.suffix is not None and s.correct is not None:
        values[EXTRACTION_STRENGTH] = F.extraction_strength(s.suffix, s.tokens, d.extraction_floor)
        values[EXACT_MEMORIZATION] = s.correct / s.tokens
    return values
