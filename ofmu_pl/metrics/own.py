"""A metric of the user's own, beside those that a suite computes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ofmu_pl.metrics.result import LAST, MetricResult, by_name
from ofmu_pl.support.errors import UserError


class OwnMetric(ABC):
    """A metric of your own, which goes wherever the suite's metrics go: table, ``results.json``, report.

    Declare it by ``Metric`` and compute it from scores; an evaluation takes it as one of its ``own_metrics``. With a
    retrained model, that model's value is the goal of a result that has none.

    Example:
        >>> from ofmu_pl import Metric
        >>> import numpy as np
        >>> WORST = Metric("forget_worst_Prob", higher_is_better=False, group="forgotten")
        >>> class Worst(OwnMetric):
        ...     def compute(self, scores):
        ...         losses = scores["forget"].answer_loss
        ...         return [WORST.result(float(np.exp(-losses.min())), n=len(losses))]
        >>> from ofmu_pl import SetScores
        >>> (result,) = Worst().compute({"forget": SetScores(ids=np.arange(2), answer_loss=np.array([0.0, 3.0]))})
        >>> result.metric.name, result.value
        ('forget_worst_Prob', 1.0)
    """

    @abstractmethod
    def compute(self, scores: Mapping[str, Any]) -> Iterable[MetricResult]:
        """Compute results from one model's ``SetScores`` (images: ``ImageScores``) by evaluation set, as ``forget``."""


def check_own(own_metrics: object) -> None:
    """Refuse what is given as ``own_metrics`` and is no list of them: a class, say, instead of its object."""
    given = [] if own_metrics is None else own_metrics
    if not isinstance(given, list | tuple) or not all(isinstance(own, OwnMetric) for own in given):
        raise UserError(f"evaluation.own_metrics is {given!r}: give a list of objects of OwnMetric, as [Worst()].")


def with_own(
    metrics: Mapping[str, MetricResult],
    own_metrics: Sequence[OwnMetric],
    scores: Mapping[str, Any],
    retrained: Mapping[str, Any] | None,
) -> dict[str, MetricResult]:
    """The metrics of a suite, then the user's own, whose goals are the retrained model's values, if it is there."""
    found = dict(metrics)
    for own in own_metrics:
        goals = {} if retrained is None else by_name(*own.compute(retrained))
        for result in own.compute(scores):
            name = result.metric.name
            if name in found:
                raise UserError(f"The metric '{name}' of {type(own).__name__} is there already: rename it.")
            goal = goals.get(name)
            column = LAST if result.metric.column is None else result.metric.column
            found[name] = shown = replace(result, metric=replace(result.metric, column=column))
            if shown.target is None and goal is not None:
                found[name] = replace(shown, target=goal.value, away=result.less(goal))
    return found
