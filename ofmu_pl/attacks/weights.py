"""Attacks that change a model's weights without training it, more and more: what they have in common."""

from abc import ABC
from collections.abc import Callable, Mapping

import numpy as np
from torch import nn

from ofmu_pl.attacks.base import Attack, Finding, Findings
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.metrics.result import Metric
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.records.models import TARGET, UNLEARNED

Change = Callable[[nn.Module], list[str]]
"""Changes a model's weights in place, and gives the names of the layers that it changed."""


class WeightAttack(Attack, ABC):
    """Change the weights and ask for the forgotten rows; see its subclasses.

    Found is the mean probability ``exp(-loss)`` of the forgotten rows' answers after the change that is best for the
    attacker. Beside it stand the share of what was forgotten that this gives back, ``(found - before) / (target before
    - before)``, and the retain rows' probability after each change: a model that a change destroyed is not a safe one.

    Args:
        changes: Ways to change a model, by their places along the curve.
        whole: The place where nothing is changed.
        rows: Most forgotten rows, and most retain rows, that are asked for; ``None``: all.
    """

    modalities = ("text", "images")
    y_label = "probability of forgotten rows"
    untouched_at = 0  # the place ``whole``

    def __init__(self, changes: Mapping[str, Change], whole: str, rows: int | None) -> None:
        check_range(1, rows=rows)
        self.changes, self.whole, self.rows = changes, whole, rows
        self._kept = f"{self.name}_retain_prob_"
        kept = [Metric(f"{self._kept}{place}", higher_is_better=True, group="attacks") for place in (whole, *changes)]
        found = (Metric(f"{self.name}_{x}", higher_is_better=False, group="attacks") for x in ("prob", "given_back"))
        self.metrics = (*found, *kept)

    def run(self, subject: Subject, seed: int) -> Finding:
        """Make every change; nothing is drawn, so all seeds find the same."""
        places = {side: subject.places(side, self.rows) for side in ("forget", "retain")}
        forgotten: dict[str, np.ndarray] = {}
        kept: dict[str, float] = {}
        broken = []
        for label in (self.whole, *self.changes):
            model = subject.build()
            if label != self.whole and not self.changes[label](model):
                raise UserError(f"The model has no linear or convolutional layer: leave out the attack '{self.name}'.")
            p, q = (subject.probabilities(model, side, index) for side, index in places.items())
            if not (np.isfinite(p).all() and np.isfinite(q).all()):
                broken.append(label)
            forgotten[label] = np.nan_to_num(p, nan=0.0)  # what says nothing finds nothing
            kept[f"{self._kept}{label}"] = float(np.nan_to_num(q, nan=0.0).mean())
        curve = {label: float(p.mean()) for label, p in forgotten.items()}
        best = max(self.changes, key=curve.__getitem__)
        why = f"The loss is not finite at {', '.join(broken)} ({self.x_label})." if broken else None
        metric, values = self.metrics[0], forgotten[best].tolist()
        found = Finding.of_rows(metric, values, x=list(curve), y=list(curve.values()), broken=why)
        found.figures.update(kept)
        return found

    def compare(self, found: Findings) -> dict[str, float]:
        """The share of what was forgotten that the change gives back."""
        if TARGET not in found:
            return {}
        prob, given_back, *_ = (metric.name for metric in self.metrics)
        before = float(np.mean([f.y[0] for f in found[UNLEARNED]]))
        whole = float(np.mean([f.y[0] for f in found[TARGET]]))
        after = float(np.mean([f.figures[prob] for f in found[UNLEARNED]]))
        return {given_back: (after - before) / (whole - before)} if whole - before > 1e-6 else {}
