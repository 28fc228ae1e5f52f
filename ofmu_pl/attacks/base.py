r"""The seam of attacks: one model in, what was found out.

An attack's figure means little alone, for an attack can teach the facts themselves. So the same attack is made, with
the same seed, on three models, and what returns is the share of the way from the retrained model to the target:

    returns = (found(unlearned) - found(retrained)) / (found(target) - found(retrained))

0: the attack finds what it finds where the rows were never seen; 1: it finds what it finds where nothing was forgotten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np

from ofmu_pl.attacks.subject import Subject
from ofmu_pl.metrics.result import Metric

UNLEARNED, RETRAINED, TARGET = MODELS = ("unlearned", "retrained", "target")
"""The model that was attacked, the one that never saw the forgotten rows, and the one that forgot nothing."""


@dataclass
class Finding:
    """What an attack found on one model with one seed.

    Attributes:
        figures: Values by the name of the attack's metrics.
        rows: Values of rows, whose mean the figure of that name is; the same rows in the same order for every model.
        x: Places along the attack's curve: steps, bits, samples, layers, or names.
        y: Mean at each place of what the attack finds, (len(x),).
        gradients: Number of gradients of a batch's loss that it took.
        seconds: Time that it took; the command takes it.
        broken: How the attack broke the model, as a sentence; ``None``: it did not.
        ids: Numbers of the rows, where each seed asks for others; empty: every seed has the same rows.
    """

    figures: dict[str, float] = field(default_factory=dict)
    rows: dict[str, list[float]] = field(default_factory=dict)
    x: list[Any] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    gradients: int = 0
    seconds: float = 0.0
    broken: str | None = None
    ids: list[int] = field(default_factory=list)

    @classmethod
    def of_rows(cls, metric: Metric, values: Sequence[float], **more: Any) -> Finding:
        """A finding whose figure is the mean of rows, with more fields.

        >>> Finding.of_rows(Metric("found", False), [0.0, 1.0]).figures
        {'found': 0.5}
        """
        values = [float(x) for x in values]
        return cls({metric.name: sum(values) / len(values)}, {metric.name: values}, **more)

    @classmethod
    def at_best(cls, metric: Metric, rows: Mapping[Any, np.ndarray], **more: Any) -> Finding:
        """A finding of the place along the curve that is best for the attacker.

        Args:
            metric: The attack's metric, of which an attacker wants a mean as high as can be.
            rows: (n,) values of rows by place.
            more: Other fields.

        >>> found = Finding.at_best(Metric("found", False), {"a": np.array([0.0, 1.0]), "b": np.array([0.0, 0.5])})
        >>> found.figures, found.x, found.y
        ({'found': 0.5}, ['a', 'b'], [0.5, 0.25])
        """
        best = max(rows, key=lambda place: float(rows[place].mean()))
        means = [float(values.mean()) for values in rows.values()]
        return cls.of_rows(metric, rows[best].tolist(), x=list(rows), y=means, **more)


class Attack(ABC):
    """An attack on a model that has forgotten.

    A subclass keeps each argument as an attribute of the argument's name: these are the key of what it finds, beside
    the model, the data and the seed. ``run`` must follow from them alone.

    Attributes:
        name: Name in files and tables, which tells it from another attack of its class in the same list.
        modalities: Kinds of data that it can attack.
        metrics: Its metrics; the first is what it finds, from which ``returns`` is computed.
        x_label: What its curve runs along.
        y_label: What its curve shows.
        compares: Whether ``run`` looks at other models than the one under attack, so that its findings follow from
            them, too.
        gradients: Number of gradients of a batch's loss that it takes on one model, as far as the loss stays finite.

    Example:
        An attack that asks for nothing but the forgotten rows' probability.

        >>> from ofmu_pl import Metric
        >>> class Ask(Attack):
        ...     name, modalities, x_label, y_label = "ask", ("text", "images"), "attempt", "probability"
        ...     metrics = (Metric("ask_forget_prob", higher_is_better=False, group="attacks"),)
        ...     def run(self, subject, seed):
        ...         p = subject.probabilities(subject.build(), "forget")
        ...         return Finding.of_rows(self.metrics[0], p)
        >>> Ask().settings
        {}
    """

    name: str
    modalities: tuple[str, ...] = ("text",)
    metrics: tuple[Metric, ...]
    x_label: str
    y_label: str
    compares: bool = False
    gradients: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        """Its arguments by name."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    @property
    def reads(self) -> list[str]:
        """Files and folders that it reads, as its arguments name them: what is in them is part of the key, too."""
        return []

    @abstractmethod
    def run(self, subject: Subject, seed: int) -> Finding:
        """Attack one model; everything that is drawn follows from the seed.

        Raises:
            UserError: The data lacks what the attack needs.
        """

    def across(self, unlearned: Sequence[Finding], retrained: Sequence[Finding]) -> dict[str, float]:
        """Figures that need many runs of one method, by name, from a finding a run; by default there are none."""
        return {}

    def compare(self, found: Mapping[str, Sequence[Finding]]) -> dict[str, float]:
        """Figures that need several models, by metric, from findings by model, one a seed; by default there are none.

        ``retrained`` and ``target`` may be missing.
        """
        return {}
