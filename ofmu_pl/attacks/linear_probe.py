"""A linear probe: do hidden states still tell the forgotten rows' right answers from wrong ones?

The probe is fitted on retained facts and tested on forgotten ones. So it learns where a model of this kind keeps what
it expects, but no fact. A probe that is tested on its own facts would learn these. Why probes: Lynch et al. 2024
(arXiv 2402.16835).
"""

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ofmu_pl.attacks.base import Attack, Finding, unless_finite
from ofmu_pl.attacks.choices import Choices, batches_of, choices_of
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data.encoded import wrong_answers_of
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.losses import IGNORED, shifted
from ofmu_pl.metrics.membership import auc
from ofmu_pl.metrics.result import Metric
from ofmu_pl.networks.layers import all_hidden_states
from ofmu_pl.support.errors import check_range

AUC = Metric("linear_probe_auc", higher_is_better=False, group="attacks")
STRENGTH = 0.01  # inverse of the penalty; on the quickstart's models 1e-4 to 1 give the same within 0.06


class LinearProbe(Attack):
    """Fit a logistic regression on retain rows, and let it choose among the forgotten rows' answers.

    Labels are right and wrong: of each question the right answer and the perturbed ones, in one form
    (``attacks.choices``). An answer's features are what a layer expects of its tokens, dimension by dimension,

        x_l = mean_t  h_{l,t-1} / rms(h_{l,t-1}) * W_{y_t}                                                    (d,)

    with W the output embeddings (the logit lens is their sum). The regression, without intercept, is on differences
    between right and wrong answers to one question. Found is the mean over forgotten rows of the AUC within the row,
    the share of wrong answers that score below the right one, at the layer that is best for the attacker: 0.5 is
    chance.

    Args:
        rows: Most forgotten rows that are asked for; ``null``: all.
        fit_rows: Most retain rows that the probe is fitted on.

    Example:
        >>> LinearProbe(rows=20).settings
        {'rows': 20, 'fit_rows': 120}
    """

    metrics = (AUC,)
    x_label, y_label = "layer", "AUC of right against wrong answers"
    tests = "inside"

    def __init__(self, rows: int | None = 100, fit_rows: int = 120) -> None:
        check_range(1, rows=rows, fit_rows=fit_rows)
        self.rows, self.fit_rows = rows, fit_rows

    def run(self, subject: Subject, seed: int) -> Finding:
        """Fit and test a probe at every layer; nothing is drawn."""
        test, train = self._sides(subject.data)
        model = subject.build()
        known, unknown = (_features(subject, model, choices) for choices in (train, test))
        areas = {layer: _areas(known, unknown, layer) for layer in range(known[0].shape[1])}
        return Finding.at_best(AUC, areas, broken=unless_finite(*known, *unknown))

    def _sides(self, data: TextDataModule) -> tuple[Choices, Choices]:
        """Answers of forgotten rows, which are asked for, and of retain rows, which the probe is fitted on."""
        asked = data.evaluation_sets.get("forget", [])
        kept = [row for row in data.splits["retain"] if wrong_answers_of(row)] or data.evaluation_sets.get("retain", [])
        return (
            choices_of(data, evenly(asked, self.rows or len(asked)), self.name),
            choices_of(data, evenly(kept, self.fit_rows), self.name),
        )


def _features(subject: Subject, model: Any, choices: Choices) -> list[np.ndarray]:
    """Of each row the features of its answers at every layer, (answers, L + 1, d)."""
    output = model.get_output_embeddings().weight
    flat: dict[int, np.ndarray] = {}
    with torch.no_grad():
        for batch in batches_of(subject, choices):
            targets = shifted(batch["labels"])
            there = (targets != IGNORED)[..., None]
            expected = F.embedding(targets.clamp(min=0), output)
            layers = [
                (F.rms_norm(hidden, hidden.shape[-1:]) * expected * there).sum(1) / there.sum(1)
                for hidden in all_hidden_states(model, batch)
            ]
            flat |= dict(zip(batch["ids"].tolist(), torch.stack(layers, 1).double().cpu().numpy(), strict=True))
    return np.split(np.stack([flat[i] for i in range(len(flat))]), np.cumsum([len(row) for row in choices])[:-1])


def _areas(known: list[np.ndarray], unknown: list[np.ndarray], layer: int) -> np.ndarray:
    """AUC within each of the unknown rows, (n,), of a probe that was fitted on the known ones."""
    from sklearn.linear_model import LogisticRegression  # takes a second: only where it is used

    x = np.concatenate([row[:1, layer] - row[1:, layer] for row in known])
    scale = x.std(axis=0) + 1e-12
    if not (np.isfinite(x).all() and all(np.isfinite(row[:, layer]).all() for row in unknown)):
        return np.full(len(unknown), 0.5)  # nothing can be read there
    both = np.concatenate([x, -x]) / scale  # a difference and its mirror image: without intercept they weigh the same
    probe = LogisticRegression(C=STRENGTH, fit_intercept=False, max_iter=1000).fit(both, np.repeat([1, 0], len(x)))
    scores = [(row[:, layer] / scale) @ probe.coef_[0] for row in unknown]
    return np.array([auc(s[1:], s[:1]) for s in scores])
