"""Logit lens: what would the model say if it stopped at an earlier layer?

nostalgebraist 2020, "interpreting GPT: the logit lens". What the last layers hide may still stand in the middle.
"""

import numpy as np
import torch

from ofmu_pl.attacks.base import Attack, Finding, unless_finite
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.metrics.result import Metric
from ofmu_pl.networks.layers import all_hidden_states, layers_of, patched
from ofmu_pl.support.errors import check_range

FORGET = "forget"
PROB = Metric("logit_lens_prob", higher_is_better=False, group="attacks")


class LogitLens(Attack):
    """Put the hidden states of each layer through the model's final norm and output head.

        p_l = exp(mean_t log softmax(head(norm(h_l)))_{y_t})

    at the positions that predict the answer's tokens y_t; l = 0 are the embeddings, and p_L is the model's own
    probability. Found is the mean over forgotten rows at the layer that is best for the attacker. Norm and head are
    those of the model under attack, which an attacker has; Jeung et al. 2026 (arXiv 2605.24614) take the target's.

    Args:
        rows: Most forgotten rows that are asked for; ``null``: all.

    Example:
        >>> LogitLens(rows=20).settings
        {'rows': 20}
    """

    metrics = (PROB,)
    x_label, y_label = "layer", "probability of forgotten rows"
    tests = "inside"
    untouched_at = -1  # the last layer is the model's own answer

    def __init__(self, rows: int | None = 100) -> None:
        check_range(1, rows=rows)
        self.rows = rows

    def run(self, subject: Subject, seed: int) -> Finding:
        """Ask every layer; nothing is drawn."""
        model = subject.build()
        last = layers_of(model)[-1]
        parts = []
        with torch.no_grad():
            for batch in subject.batches(FORGET, subject.places(FORGET, self.rows)):
                layers = []
                for hidden in all_hidden_states(model, batch):
                    with patched(last, hidden):  # the model itself does what comes after its last layer
                        layers.append(subject.recipe.sample_losses(model, batch).double())
                parts.append(torch.stack(layers))
        losses = torch.cat(parts, dim=1).cpu().numpy()
        found = np.nan_to_num(np.exp(-losses))  # (L + 1, n); a layer without a finite loss says nothing
        return Finding.at_best(PROB, dict(enumerate(found)), broken=unless_finite(losses[-1]))
