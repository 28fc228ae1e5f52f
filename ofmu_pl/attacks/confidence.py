"""Confidences of forgotten rows: harmless on one model, and the matter of attacks on single examples over many."""

from collections.abc import Sequence

import numpy as np

from ofmu_pl.attacks.base import Attack, Finding, unless_finite
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.metrics.per_example import FEWEST, compared, null
from ofmu_pl.metrics.result import Metric
from ofmu_pl.support.records.results import NULL


class Confidence(Attack):
    """Look how sure a model is of each forgotten row: phi = ln p - ln(1 - p), p the probability of its label or answer.

    Over four or more runs of one method, whose retrained models differ as the runs do, each row's confidences are
    compared (``metrics.per_example``): the mean epsilon, the points of the NeurIPS 2023 competition, and U-LiRA's AUC
    and rate of finds at 1 % false alarms, each beside what it is where models are dealt to the two sides at random. The
    number of runs is part of the result, for epsilon cannot exceed its logarithm, and the competition had 512.

    Example:
        >>> Confidence().name
        'confidence'
    """

    modalities = ("text", "images")
    x_label, y_label = "share of forgotten rows", "confidence (nats)"
    metrics = (Metric("confidence_forget", higher_is_better=False, unit="nats", group="attacks"),)

    def untouched(self, finding: Finding) -> float:
        """It asks a model once, as it is."""
        return finding.figures[self.metrics[0].name]

    def run(self, subject: Subject, seed: int) -> Finding:
        """Score the forgotten rows; the curve shows their quantiles, and nothing is drawn."""
        p = np.clip(subject.probabilities(subject.build(), "forget"), 1e-12, 1 - 1e-12)
        phi = np.log(p) - np.log1p(-p)
        shares = [0.05, 0.25, 0.5, 0.75, 0.95]
        quantiles, broken = np.quantile(phi, shares).tolist(), unless_finite(phi)
        return Finding.of_rows(self.metrics[0], phi.tolist(), x=shares, y=quantiles, broken=broken)

    def across(self, unlearned: Sequence[Finding], retrained: Sequence[Finding]) -> dict[str, float]:
        """Scores of single examples over models; none where fewer than four retrained models differ."""
        name = self.metrics[0].name
        different = dict.fromkeys(tuple(f.rows[name]) for f in retrained)
        if min(len(unlearned), len(different)) < FEWEST:
            return {}
        ours, theirs = np.array([f.rows[name] for f in unlearned]), np.array(list(different))
        figures = {"models": float(len(ours))} | compared(ours, theirs)
        for figure, ends in null(ours, theirs).items():
            figures |= {f"{figure}{end}": x for end, x in zip(NULL, ends, strict=True)}
        return figures
