"""The declaration of a metric, once beside its computation, and a result: a number with what is needed to read it.

A new metric is a declaration and a result, in one file:

    COVERAGE = Metric("forget_coverage", higher_is_better=False, group="forgotten")
    ...
    COVERAGE.result(0.25, n=40)

The printed table, ``results.json`` and the report take its direction, unit and place from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ofmu_pl.metrics.bootstrap import interval, testable

Items = tuple[np.ndarray, ...]
"""Values of items, one array for each group of them that was drawn by itself; the sum of the groups' means counts."""
Unit = Literal["0 to 1", "%", "nats", "bits", "p-value", "log10 p", "KS distance", "steps", "score", "cosine"]
STORED, JUDGED = ("value", "n", "target", "definition", "interval"), ("apart", "verdict", "change")
"""What a file keeps of a result, beside its declaration: always, and where it was judged."""
SAID = ("name", "says", "rows", "chance")
"""What of a declaration is in no file of numbers; the name stands before the entry."""
LAST = 99
"""Column of metrics that were asked for beside the suite: behind its own."""
Verdict = Literal["no difference", "more is left", "less is left", "above the goal", "below the goal", "too few"]
"""How a value lies to its goal. Too few: so many rows of such values cannot be told from it."""
Change = Literal["worse", "better", "unchanged", "too few"]
GROUPS = ("forgotten", "nearness", "requests", "unseen", "kept", "language", "attacks", "probes", "choices")
"""Groups of metrics in the order of the printed table; metrics of other groups come last."""


@dataclass(frozen=True)
class Metric:
    """The declaration of a metric.

    Attributes:
        name: The metric's name in every output.
        higher_is_better: Direction, where there is no goal. With a goal nearer is better, and the direction says on
            which side of it values usually lie.
        unit: Unit of the value.
        group: Metrics that it is printed with, one of ``GROUPS`` or one of a suite's own.
        column: Place among the columns of a report where no columns are chosen; ``None``: it is no column there.
        tested_as: Name of the metric that takes its place in tests, ranks and distances: for a p-value, which is
            crowded at both ends, its distance.
        family: The part of the name that a suite puts before the metric's own, for example the name of a probe.
        says: Sentence for people who do not know metrics, with ``{value}`` and perhaps ``{rows}``, which stands for
            what sentences call its rows; ``None``: the name has to do.
        rows: Evaluation set of its rows, for sentences; ``None``: the group says enough.
        chance: Whether its goal, if it has one, is what chance gives, even where there is a retrained model.
    """

    name: str
    higher_is_better: bool
    unit: Unit = "0 to 1"
    group: str = "other"
    column: int | None = None
    tested_as: str | None = None
    family: str | None = None
    says: str | None = field(default=None, compare=False)
    rows: str | None = field(default=None, compare=False)
    chance: bool = field(default=False, compare=False)

    def of(self, prefix: str, instead_of: str = "", **declared: Any) -> Metric:
        """Declare the same metric of another set: a prefix replaces the beginning of its name, and attributes differ.

        >>> Metric("forget_ROUGE", False).of("probe_x_forget", instead_of="forget", group="probes").name
        'probe_x_forget_ROUGE'
        """
        names = {"name": self.name} | ({"tested_as": self.tested_as} if self.tested_as else {})
        names = {k: f"{prefix}_{name.removeprefix(f'{instead_of}_')}" for k, name in names.items()}
        return replace(self, **(names | declared))

    def result(
        self,
        value: float,
        n: int,
        target: float | None = None,
        definition: str = "exact",
        interval: tuple[float, float] | None = None,
        items: Items = (),
        away: Items = (),
    ) -> MetricResult:
        """Make a result of this metric; numbers may be NumPy's."""
        target = None if target is None else float(target)
        return MetricResult(self, float(value), int(n), target, definition, interval, items, away)

    def of_items(
        self,
        values: np.ndarray,
        goal: np.ndarray | float | None = None,
        definition: str = "exact",
        intervals: bool = True,
        same_items: bool = True,
    ) -> MetricResult:
        """Make the result that is the mean of values, with its interval and its difference from the goal.

        Args:
            values: (N,) values by item; in per cent 0 to 100.
            goal: Values whose mean is the goal, or the goal itself, from which means of few or skewed values cannot be
                told (``bootstrap.testable``); ``None``: there is none.
            definition: Name of the definition.
            intervals: Compute the interval.
            same_items: The goal's values are of the same items in the same order, so that they are compared in pairs.

        >>> result = Metric("UA", True, "%").of_items(np.array([100.0, 0.0, 0.0, 100.0]), goal=30.0)
        >>> result.value, result.target, [x.tolist() for x in result.away]
        (50.0, 30.0, [[70.0, -30.0, -30.0, 70.0]])
        """
        target, ends = None if goal is None else float(np.mean(goal)), None
        away: Items = ()
        verdict: Verdict | None = None if isinstance(goal, np.ndarray | None) or testable(values) else "too few"
        with np.errstate(invalid="ignore"):  # losses may be infinite
            if isinstance(goal, np.ndarray) and not (same_items and goal.shape == values.shape):
                away = (values, -goal)
            elif goal is not None and verdict is None:
                away = (values - goal,)
        if intervals:
            scale = 100.0 if self.unit == "%" else 1.0
            low, high = interval([values / scale], bounded=self.unit in ("0 to 1", "%"))
            ends = scale * low, scale * high
        found = self.result(float(values.mean()), len(values), target, definition, ends, (values,), away)
        return replace(found, verdict=verdict)


@dataclass(frozen=True)
class MetricResult:
    """One number with what is needed to read it.

    Attributes:
        metric: The declaration.
        value: The number.
        n: Number of items that it is computed from.
        target: The goal, often the retrained model's value; ``None``: there is none but the direction.
        definition: Name of the definition.
        interval: 95 % interval over items; ``None`` where items have no values of their own (tests).
        items: What the value is the mean of, in memory alone; empty: items have no values of their own.
        away: What the difference from the goal is the mean of, in memory alone: over the same rows where the goal is
            another model's value on them. Empty: there is no goal, or no such values.
        apart: How far a second retrained model's value is from the goal; ``None``: there is no such model.
        verdict: How it lies to its goal (``verdicts.with_verdicts``); ``None``: it has no goal or no values of rows, or
            was not judged.
        change: What became of it in the run, likewise, where it is of what must stay.
    """

    metric: Metric
    value: float
    n: int
    target: float | None = None
    definition: str = "exact"
    interval: tuple[float, float] | None = None
    items: Items = field(default=(), compare=False, repr=False)
    away: Items = field(default=(), compare=False, repr=False)
    apart: float | None = None
    verdict: Verdict | None = None
    change: Change | None = None

    @property
    def higher_is_better(self) -> bool:
        """Direction, where there is no goal."""
        return self.metric.higher_is_better

    @property
    def unit(self) -> Unit:
        """Unit of the value."""
        return self.metric.unit

    @property
    def group(self) -> str:
        """Metrics that it is printed with."""
        return self.metric.group

    def beside(self, second: MetricResult | None) -> MetricResult:
        """The same result with how far a second retrained model's is from a goal that is the first one's."""
        if second is None or self.target is None or self.metric.chance:
            return self
        return replace(self, apart=abs(second.value - self.target))

    def less(self, other: MetricResult) -> Items:
        """Differences from another model's result, item by item; empty where the two are not of the same items."""
        if [x.shape for x in self.items] != [x.shape for x in other.items]:
            return ()
        return tuple(x - y for x, y in zip(self.items, other.items, strict=True))

    def as_dict(self) -> dict[str, Any]:
        """The entry in ``results.json``: the number, what of the declaration is declared, and what was judged."""
        declared = {name: x for name, x in vars(self.metric).items() if name not in SAID and x is not None}
        judged = {name: x for name in JUDGED if (x := getattr(self, name)) is not None}
        return {name: getattr(self, name) for name in STORED} | declared | judged

    @classmethod
    def from_dict(cls, name: str, entry: Mapping[str, Any]) -> MetricResult:
        """Restore what ``as_dict`` gave, but for what sentences need of the declaration.

        >>> result = Metric("UA", True, "%").result(50.0, n=4, interval=(25.0, 75.0))
        >>> MetricResult.from_dict("UA", result.as_dict()) == result
        True
        """
        own = entry.keys() & {*STORED, *JUDGED}
        declared = Metric(name, **{key: x for key, x in entry.items() if key not in own})
        ends = entry["interval"]
        return cls(declared, **{key: entry[key] for key in own} | {"interval": ends and (ends[0], ends[1])})


def by_name(*results: MetricResult) -> dict[str, MetricResult]:
    """Results by their metrics' names, in order."""
    return {result.metric.name: result for result in results}
