"""Noise on questions: answers are to be forgotten however they are asked for, not after the trained questions alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ofmu_pl.losses import IGNORED
from ofmu_pl.networks.base import Batch


def with_noise(batch: Batch, share: float, vocabulary: int, spared: Sequence[int], key: tuple[int, int]) -> Batch:
    """Replace some tokens of a batch's questions by random ones.

    Args:
        batch: ``input_ids``, ``attention_mask`` and ``labels``, (B, S) each; tokens without a label are the question's.
        share: Probability of a replacement, in [0, 1].
        vocabulary: Number V of tokens to draw from.
        spared: Tokens that stay, such as those that mark turns.
        key: Two numbers in [0, 2^64) that settle the draw.

    Returns:
        The batch with other ``input_ids``; answers, marks of turns and padding are as they were.

    Example:
        >>> tokens = torch.arange(8).view(1, 8)
        >>> labels = torch.where(tokens < 5, IGNORED, tokens)
        >>> batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}
        >>> with_noise(batch, share=1.0, vocabulary=100, spared=[0], key=(0, 0))["input_ids"]
        tensor([[ 0, 25, 40, 19, 94,  5,  6,  7]])
    """
    ids = batch["input_ids"]
    rng = np.random.Generator(np.random.Philox(key=np.array(key, dtype=np.uint64)))
    drawn, other = rng.random(ids.shape) < share, rng.integers(vocabulary, size=ids.shape)
    asked = (batch["labels"] == IGNORED) & batch["attention_mask"].bool()
    asked &= ~torch.isin(ids, torch.tensor(list(spared), device=ids.device, dtype=ids.dtype))
    replaced = asked & torch.from_numpy(drawn).to(ids.device)
    return batch | {"input_ids": torch.where(replaced, torch.from_numpy(other).to(ids), ids)}
