"""Quantisation: does rounding the weights undo the unlearning?

Zhang et al. 2024 (arXiv 2410.16454): unlearning moves weights so little that rounding to 4 bits maps many of them to
the value that the target's are rounded to. Their script asks bitsandbytes for ``load_in_4bit`` alone, which is
``fp4``; others round to ``nf4``: so a type is always named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ofmu_pl.attacks.base import TARGET, UNLEARNED, Attack, Finding, Findings
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.metrics.result import Metric
from ofmu_pl.networks.rounding import round_matrices
from ofmu_pl.support.errors import UserError, check_range

PROB = Metric("quantise_prob", higher_is_better=False, group="attacks")
GIVEN_BACK = Metric("quantise_given_back", higher_is_better=False, group="attacks")
KEPT = "quantise_retain_prob_"
"""What the names of its metrics of retain rows begin with."""
WHOLE = "32"
"""The place on the curve where nothing is rounded."""


class Quantise(Attack):
    """Round the weights, and ask for the forgotten rows.

    Rounded are the weights of linear and convolutional layers, but not embeddings and a language model's output layer;
    the arithmetic stays in float32. Found is the mean probability ``exp(-loss)`` of the forgotten rows' answers at the
    width that is best for the attacker. Beside it stand the share of what was forgotten that rounding gives back,
    ``(found - before) / (target before - before)``, and the retain rows' probability at each width: a model that
    rounding destroyed is not a safe one.

    Args:
        widths: What the weights are rounded to: a number of bits, with a step for each output channel (absolute
            maximum, symmetric, round to nearest), or bitsandbytes' ``nf4`` or ``fp4``, in blocks of 64 weights.
        rows: Most forgotten rows, and most retain rows, that are asked for; ``null``: all.

    Example:
        >>> [metric.name for metric in Quantise([8, "nf4"]).metrics[2:]]
        ['quantise_retain_prob_32', 'quantise_retain_prob_8', 'quantise_retain_prob_nf4']
    """

    modalities = ("text", "images")
    x_label, y_label = "bits", "probability of forgotten rows"
    tests = "bits"

    def __init__(self, widths: Sequence[int | Literal["nf4", "fp4"]] = (8, 4, 3), rows: int | None = 100) -> None:
        check_range(1, rows=rows)
        if not widths:
            raise UserError("attacks.widths is empty: give what the weights are rounded to, for example [8, 4].")
        for width in widths:
            if isinstance(width, int):
                check_range(2, 16, widths=width)
            elif width not in ("nf4", "fp4"):
                raise UserError(f"attacks.widths has '{width}': give numbers of bits, nf4 or fp4.")
        self.widths, self.rows = list(widths), rows
        kept = [Metric(f"{KEPT}{width}", higher_is_better=True, group="attacks") for width in (WHOLE, *widths)]
        self.metrics = (PROB, GIVEN_BACK, *kept)

    def run(self, subject: Subject, seed: int) -> Finding:
        """Round to every width; nothing is drawn, so all seeds find the same."""
        places = {side: subject.places(side, self.rows) for side in ("forget", "retain")}
        forgotten: dict[str, np.ndarray] = {}
        kept: dict[str, float] = {}
        broken = []
        for width in (None, *self.widths):
            model = subject.build()
            if width is not None and not round_matrices(model, width):
                raise UserError("The model has no linear or convolutional layer, so there is nothing to round.")
            label = WHOLE if width is None else str(width)
            p, q = (subject.probabilities(model, side, index) for side, index in places.items())
            if not (np.isfinite(p).all() and np.isfinite(q).all()):
                broken.append(label)
            forgotten[label] = np.nan_to_num(p, nan=0.0)  # what says nothing finds nothing
            kept[f"{KEPT}{label}"] = float(np.nan_to_num(q, nan=0.0).mean())
        curve = {label: float(p.mean()) for label, p in forgotten.items()}
        best = max(map(str, self.widths), key=curve.__getitem__)
        why = f"The loss is not finite after rounding to {', '.join(broken)}." if broken else None
        found = Finding.of_rows(PROB, forgotten[best].tolist(), x=list(curve), y=list(curve.values()), broken=why)
        found.figures.update(kept)
        return found

    def compare(self, found: Findings) -> dict[str, float]:
        """The share of what was forgotten that rounding gives back."""
        if TARGET not in found:
            return {}
        before = float(np.mean([f.y[0] for f in found[UNLEARNED]]))
        whole = float(np.mean([f.y[0] for f in found[TARGET]]))
        after = float(np.mean([f.figures[PROB.name] for f in found[UNLEARNED]]))
        return {GIVEN_BACK.name: (after - before) / (whole - before)} if whole - before > 1e-6 else {}
