"""Your data: how far forget rows are from held-out rows, also without a retrained model; and benchmarks beside it."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ofmu_pl.metrics import tofu_items as T
from ofmu_pl.metrics.definitions import DEFINITIONS, Definition
from ofmu_pl.metrics.documents import document_metrics
from ofmu_pl.metrics.result import Metric, MetricResult, by_name
from ofmu_pl.metrics.scores import Scores, SetScores
from ofmu_pl.metrics.tofu import attacked, membership, tofu_metrics
from ofmu_pl.support.sets import is_probe

LOSS = Metric(
    "forget_loss",
    higher_is_better=True,
    unit="nats",
    group="forgotten",
    says="On {rows}, the right answer surprises the model by {value} a token, where 0 is knowing it by heart.",
)
MEASURES: tuple[Metric, ...] = (LOSS, T.PROBABILITY, T.FACTS_LOSS, T.FACTS_PROBABILITY, T.ROUGE)
MEASURES += (T.EXTRACTION_STRENGTH, T.EXACT_MEMORIZATION)
"""What is measured of forget, holdout and retain rows alike."""
SIDES = {"forget": "forgotten", "holdout": "unseen", "retain": "kept"}  # groups of the metrics by evaluation set
HEADLINE = "mia_loss"  # the attack that a report shows where nobody has chosen its columns
UNTOLD = 0.5  # AUC of an attack that cannot tell forget rows from rows that no model has seen
Read = Callable[[Scores], dict[Metric, np.ndarray | None]]
"""Gives a benchmark's metrics and their values row by row, (N,) each, of the probes that were asked; ``None``: nothing
was generated."""


def own_rows_metrics(
    scores: Scores,
    reference: Scores | None = None,
    definition: str = "exact",
    reference_values: Mapping[str, float] | None = None,
    intervals: bool = False,
) -> dict[str, MetricResult]:
    """TOFU's suite as far as it applies, the same scores of holdout and retain rows, and those of documents.

    With a retrained model its values are the goals, as for TOFU. Without one the goals are what the judged model itself
    has on holdout rows, and 0.5 for attacks: where it lies inside an attack's interval, the attack cannot tell the two
    apart. Without holdout rows either there is no goal but the direction, and no attack. The scores are those of
    ``forget``, ``retain`` and ``holdout``, or of these with ``_doc``; the arguments are those of ``tofu_metrics``.
    """
    d, reference, known = DEFINITIONS[definition], reference or {}, dict(reference_values or {})
    goals: dict[str, np.ndarray | float] = {}
    if reference:
        goals |= _goals(reference.get("forget"), d)
    else:
        told = attacked(scores) | attacked(as_rows(scores))
        goals |= _goals(scores.get("holdout"), d) | {k: x for k, x in known.items() if k.startswith("forget")}
        known = dict.fromkeys(told, UNTOLD) | known
    results = {}
    for name in [name for name in SIDES if name in scores]:
        for metric, values in of_rows(scores[name], d).items():
            own = metric if name == "forget" else _turned(metric, name)
            goal = goals.get(own.name)
            results[own.name] = own.of_items(values, goal, definition, intervals, same_items=bool(reference))
    results |= tofu_metrics(scores, reference, definition, known, intervals) | results
    results |= document_metrics(scores, reference, definition, intervals)
    results |= membership(as_rows(scores), as_rows(reference), known, d, intervals)
    if HEADLINE in results:
        found = results[HEADLINE]
        results[HEADLINE] = replace(found, metric=replace(found.metric, column=9))
    return results


def asked_metrics(
    read: Read,
    scores: Scores,
    reference: Scores | None = None,
    definition: str = "exact",
    reference_values: Mapping[str, float] | None = None,
    intervals: bool = False,
) -> dict[str, MetricResult]:
    """The metrics of your data without probes, and the means of what a benchmark reads off the probes.

    What is to be forgotten has the retrained model's value as its goal, where there is one; what is to be kept has its
    direction alone. The other arguments are those of ``tofu_metrics``.
    """
    ours, theirs = _without_probes(scores), _without_probes(reference or {})
    results = own_rows_metrics(ours, theirs, definition, reference_values, intervals)
    known, wanted = dict(reference_values or {}), read(reference or {})
    for metric, values in read(scores).items():
        if values is None:
            continue
        goal: np.ndarray | float | None = wanted.get(metric)
        goal = known.get(metric.name) if goal is None else goal
        results |= by_name(metric.of_items(values, None if metric.higher_is_better else goal, definition, intervals))
    return results


def _without_probes(scores: Scores) -> Scores:
    return {name: s for name, s in scores.items() if not is_probe(name)}


def of_rows(s: SetScores, d: Definition) -> dict[Metric, np.ndarray]:
    """Per-row values of ``MEASURES``, as of a forget set, of those that the scores allow."""
    values = {LOSS: s.answer_loss} | T.of_forget(s, d)
    return {metric: values[metric] for metric in MEASURES if metric in values}


def _goals(s: SetScores | None, d: Definition) -> dict[str, np.ndarray]:
    return {} if s is None else {metric.name: values for metric, values in of_rows(s, d).items()}


def _turned(metric: Metric, name: str) -> Metric:
    """A metric of the forget side as one of rows that a model may know."""
    upwards = not metric.higher_is_better
    return metric.of(name, "forget", group=SIDES[name], column=None, higher_is_better=upwards)


def as_rows(scores: Scores) -> Scores:
    """The pieces of documents instead of forget and holdout rows."""
    return {name: scores[f"{name}_doc"] for name in ("forget", "holdout") if f"{name}_doc" in scores}
