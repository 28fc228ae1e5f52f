"""Scores of one model on a set of images: all that metrics of classifiers need, and all that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass
class ImageScores:
    """Scores of one model on one set of images.

    Attributes:
        ids: Numbers of the images, (N,) int64, kept in ascending order; a repeated one is counted once.
        labels: True classes, (N,) int64.
        log_probs: Natural logarithms of the softmax, (N, C) float32 or float64.
    """

    ids: np.ndarray
    labels: np.ndarray
    log_probs: np.ndarray

    def __post_init__(self) -> None:
        """Keep each image once, in order: draws by position are then the same for every model and number of ranks."""
        _, first = np.unique(self.ids, return_index=True)
        self.ids, self.labels, self.log_probs = self.ids[first], self.labels[first], self.log_probs[first]

    def as_dict(self) -> dict[str, torch.Tensor]:
        """Tensors by field, for checkpoints."""
        import torch  # the metrics do without

        return {name: torch.from_numpy(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, torch.Tensor]) -> ImageScores:
        """Restore what ``as_dict`` gave."""
        return cls(**{name: value.numpy() for name, value in fields.items()})

    @property
    def predictions(self) -> np.ndarray:
        """The likeliest class, (N,); -1, which is no class, where a log-probability is NaN."""
        return np.where(np.isnan(self.log_probs).any(axis=1), -1, self.log_probs.argmax(axis=1))

    @property
    def correct(self) -> np.ndarray:
        """Whether each prediction is right, (N,) bool; NaN is wrong."""
        return self.predictions == self.labels

    @property
    def losses(self) -> np.ndarray:
        """Cross-entropies, (N,) float64, nats."""
        return -self.log_probs[np.arange(len(self.labels)), self.labels].astype(np.float64)
