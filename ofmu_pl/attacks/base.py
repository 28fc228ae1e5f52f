r"""The seam of attacks: one model in, what was found out.

An attack's figure means little alone, for an attack can teach the facts themselves. So the same attack is made, with
the same seed, on three models, and what is recovered is the share of the way from the retrained model to the target:

    returns = (found(unlearned) - found(retrained)) / (found(target) - found(retrained))

0: the attack finds what it finds where the rows were never seen; 1: it finds what it finds where nothing was forgotten.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import chain
from typing import Any

import numpy as np

from ofmu_pl.attacks.subject import Subject
from ofmu_pl.metrics.result import Metric
from ofmu_pl.support.grouping import grouped


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
        broken: Why the model says nothing, as a sentence; ``None``: it does.
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
        """A finding whose figure is the mean of rows, with other fields.

        >>> Finding.of_rows(Metric("found", False), [0.0, 1.0]).figures
        {'found': 0.5}
        """
        values = [float(x) for x in values]
        return cls({metric.name: sum(values) / len(values)}, {metric.name: values}, **more)

    @classmethod
    def at_best(cls, metric: Metric, rows: Mapping[Any, np.ndarray], **more: Any) -> Finding:
        """A finding of the place along the curve that is best for the attacker.

        An attacker wants a mean as high as can be of the (n,) values of rows at a place.

        >>> found = Finding.at_best(Metric("found", False), {"a": np.array([0.0, 1.0]), "b": np.array([0.0, 0.5])})
        >>> found.figures, found.x, found.y
        ({'found': 0.5}, ['a', 'b'], [0.5, 0.25])
        """
        best = max(rows, key=lambda place: float(rows[place].mean()))
        means = [float(values.mean()) for values in rows.values()]
        return cls.of_rows(metric, rows[best].tolist(), x=list(rows), y=means, **more)


Findings = Mapping[str, Sequence[Finding]]  # findings by model, one a seed


def mean_curve(found: Sequence[Finding], least: int = 1) -> dict[Any, float]:
    """Means over seeds by place, of places that so many seeds at least have."""
    values = grouped(chain.from_iterable(zip(f.x, f.y, strict=True) for f in found))
    return {place: float(np.mean(ys)) for place, ys in values.items() if len(ys) >= least}


def unless_finite(*values: np.ndarray) -> str | None:
    """What is wrong with a model that computes these values, as a sentence; ``None``: nothing is."""
    return None if all(np.isfinite(x).all() for x in values) else "What the model computes is not finite."


class Attack(ABC):
    """An attack on a model that has forgotten.

    A subclass keeps each argument as an attribute of the argument's name: these are the key of what it finds, beside
    the model, the data and the seed. ``run`` must follow from them alone. Those out of range raise a ``UserError``.

    Attributes:
        name: Name in files and tables, where no other attack of a list may have it; by default the class's in small
            letters, as ``logit_lens``.
        modalities: Kinds of data that it can attack.
        metrics: Its metrics; the first is what it finds, from which ``returns`` is computed.
        x_label: What its curve runs along.
        y_label: What its curve shows.
        compares: Whether ``run`` looks at other models than the one under attack, so that its findings follow from
            them, too.
        brings_back: Whether it finds what was forgotten, so that there is a ``returns``.
        zero_control: Whether it finds 0 on the retrained model by construction, as on no second one, so that nothing
            says how much is chance.
        gradients: Number of gradients of a batch's loss that it takes on one model, as far as the loss stays finite.
        tests: Key in ``evaluation.attacked.UNTRIED`` of what it tests and a run does not; empty: nothing.
        untouched_at: Place on the curve where the attack has done nothing to the model yet; ``None``: there is none.
        reads: Files and folders that it reads, as its arguments name them: what is in them is part of the key, too.

    Example:
        An attack that asks for nothing but the forgotten rows' probability.

        >>> from ofmu_pl import Metric
        >>> class Ask(Attack):
        ...     modalities, x_label, y_label = ("text", "images"), "attempt", "probability"
        ...     metrics = (Metric("ask_forget_prob", higher_is_better=False, group="attacks"),)
        ...     def run(self, subject, seed):
        ...         p = subject.probabilities(subject.build(), "forget")
        ...         return Finding.of_rows(self.metrics[0], p)
        >>> Ask().name, Ask().settings
        ('ask', {})
    """

    name: str
    modalities: tuple[str, ...] = ("text",)
    metrics: tuple[Metric, ...]
    x_label: str
    y_label: str
    compares: bool = False
    brings_back: bool = True
    zero_control: bool = False
    gradients: int = 0
    tests: str = ""
    untouched_at: int | None = None
    reads: Sequence[str] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def settings(self) -> dict[str, Any]:
        """Its arguments by name."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    @abstractmethod
    def run(self, subject: Subject, seed: int) -> Finding:
        """Attack one model; everything that is drawn follows from the seed.

        Raises:
            UserError: The data lacks what the attack needs.
        """

    def untouched(self, finding: Finding) -> float | None:
        """What the first metric is of the model as it is, to which the attack has done nothing; ``None``: not known."""
        return None if self.untouched_at is None else finding.y[self.untouched_at]

    def across(self, unlearned: Sequence[Finding], retrained: Sequence[Finding]) -> dict[str, float]:
        """Figures that need many runs of one method, by name, from a finding a run; by default there are none."""
        return {}

    def compare(self, found: Findings) -> dict[str, float]:
        """Figures that need several models, by metric, from findings by model, one a seed; by default there are none.

        ``retrained`` and ``target`` may be missing; without the first there may be ``held_out``.
        """
        return {}
