"""Losses as functions of network outputs: one value a sample, so that means over any split of a batch add up."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
"""The label of positions without loss (Hugging Face's convention)."""


def causal_lm_nll(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood of each answer, in nats a token.

    ``l_i = -(1/n_i) sum_t log p(y_{i,t} | y_{i,<t})`` over the n_i labelled tokens of row i: the paper's per-sample
    loss, whose plain mean over rows is L_f or L_r (a token mean would weigh long answers more and not add up).

    Args:
        logits: (B, S, V) of any float dtype; cast to at least float32 before the log-softmax.
        labels: (B, S) token ids, unshifted, ``-100`` where there is no loss.

    Returns:
        (B,) float32 (float64 for float64 logits).
    """
    # The labels are shifted, not the logits: a slice of these would be copied in every derivative.
    targets = F.pad(labels[:, 1:], (0, 1), value=IGNORED)
    scores = logits if logits.dtype == torch.float64 else logits.float()
    nll = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return nll.view(targets.shape).sum(1) / (targets != IGNORED).sum(1)


def ceiling(losses: Tensor, level: float | None, width: float = 0.25) -> Tensor:
    """A smooth upper bound of each sample's loss: ``level - width softplus((level - l) / width)``.

    Equal to l far below ``level`` and constant far above it, so that a sample that is forgotten stops pulling; the
    corner is rounded over ``width`` nats because Hess(Phi) needs three derivatives.

    Args:
        losses: (B,) nats.
        level: The bound in nats; ``None`` returns the losses unchanged.
        width: Half-width of the rounded corner in nats.
    """
    if level is None:
        return losses
    return level - width * F.softplus((level - losses) / width)
