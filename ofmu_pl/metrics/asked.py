"""What benchmarks ask of two sides, beside the metrics of rows of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ofmu_pl.metrics.own_rows import own_rows_metrics
from ofmu_pl.metrics.result import Metric, MetricResult, by_name
from ofmu_pl.metrics.scores import Scores
from ofmu_pl.support.sets import is_probe

Read = Callable[[Scores], dict[Metric, np.ndarray | None]]
"""Gives a benchmark's metrics and their values row by row, (N,) each, of the probes that were asked; ``None``: nothing
was generated."""


def asked_metrics(
    read: Read,
    scores: Scores,
    reference: Scores | None = None,
    definition: str = "exact",
    reference_values: Mapping[str, float] | None = None,
    intervals: bool = False,
) -> dict[str, MetricResult]:
    """The metrics of rows of one's own without probes, and the means of what a benchmark reads off the probes.

    What is to be forgotten has the retrained model's value as its goal, where there is one; what is to be kept has its
    direction alone.

    Args:
        read: What the benchmark reads.
        scores: By evaluation set.
        reference: Scores of the retrained model on the same rows, which give the goals.
        definition: A key of ``DEFINITIONS``.
        reference_values: The goals by metric, where they are known.
        intervals: Compute intervals over rows.
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
