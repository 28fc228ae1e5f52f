"""The suite of image classification as a torchmetrics metric: fed batch by batch, gathered from all ranks."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ofmu_pl.metrics.scores import ImageScores
from ofmu_pl.metrics.vision import vision_metrics

SETS = ("forget", "retain", "validation", "test")


class ImageUnlearning(Metric):
    """UA, RA, TA, MIA-Efficacy and the rest of ``vision_metrics`` of one model.

    Args:
        forgotten: Classes that are forgotten as a whole; empty for a random forget set.
        attack_samples: Number of members, and of strangers, that a membership attack learns from.
        seed: Seed of their draw.
        more: Names of sets beside ``SETS``: what other requests named.
        kwargs: See ``torchmetrics.Metric``.

    >>> metric = ImageUnlearning(attack_samples=2)
    >>> sure = torch.tensor([[9.0, 0.0]])
    >>> for name in ("forget", "retain", "test"):
    ...     for i in range(4):
    ...         metric.update(name, torch.tensor([i]), torch.tensor([i % 2]), sure)
    >>> metric.compute()["UA"]
    50.0
    """

    full_state_update = False

    def __init__(
        self,
        forgotten: tuple[int, ...] = (),
        attack_samples: int = 1000,
        seed: int = 0,
        more: tuple[str, ...] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.forgotten, self.attack_samples, self.seed = forgotten, attack_samples, seed
        self.set_dtype(torch.float64)  # of empty states too
        self.sets = (*SETS, *more)
        for name in self.sets:
            for field in ("ids", "labels", "log_probs"):
                self.add_state(f"{name}_{field}", default=[], dist_reduce_fx="cat")

    def update(self, name: str, ids: Tensor, labels: Tensor, logits: Tensor) -> None:
        """Add images.

        Args:
            name: Set of the images: forget, retain, validation, test or one of ``more``.
            ids: Numbers of the images, (B,), so that none counts twice.
            labels: True classes, (B,).
            logits: Logits or log-probabilities, (B, C).
        """
        getattr(self, f"{name}_ids").append(ids.double())  # exact up to 2^53, and one dtype for all states
        getattr(self, f"{name}_labels").append(labels.double())
        getattr(self, f"{name}_log_probs").append(logits.double().log_softmax(1))

    def scores(self) -> dict[str, ImageScores]:
        """Scores by set, of all ranks (within ``sync_context``) or of this one."""
        found = {}
        for name in self.sets:
            states = [getattr(self, f"{name}_{field}") for field in ("ids", "labels", "log_probs")]
            if not len(states[0]):  # no batch, or gathered from ranks that have none
                continue
            ids, labels, log_probs = (dim_zero_cat(s).cpu() for s in states)
            found[name] = ImageScores(ids.long().numpy(), labels.long().numpy(), log_probs.numpy())
        return found

    def compute(self) -> dict[str, float]:
        """Values by name; see ``vision_metrics``."""
        scores, forgotten, n, seed = self.scores(), self.forgotten, self.attack_samples, self.seed
        found = vision_metrics(scores, forgotten=forgotten, attack_samples=n, seed=seed)
        return {name: result.value for name, result in found.items()}
