"""Forgetting by teachers, whom the network imitates: one of forget rows, and one of retain rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ofmu_pl.losses import kl
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.networks.vision import ImageNetwork


class BadTeacher(TwoTerms):
    """``gamma KL(p_random || p) on forget + alpha KL(p_0 || p) on retain`` (Chundawat et al. 2023, arXiv 2205.08096).

    The incompetent teacher of forget images is the network untrained, its weights drawn by the data's seed (another
    than the target began as); the competent one of retain images is the frozen model. Labels are not read.

    Simplified: a row's loss is that of the authors' code (vikram2000b/bad-teaching-unlearning f1aa988, temperature 1),
    which divides it by the number of classes. There batches are drawn from forget and retain images together; here a
    step has a batch of both, and ``gamma: 0.1`` with ``alpha: 0.9`` weighs them as there where a tenth of the images is
    forgotten. There BatchNorm is in train mode (here ``bn_mode: both``).

    Args:
        network: Recipe of the network that shall forget.
        kwargs: See ``TwoTerms``; the retain loss is this class's own.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> BadTeacher(SmallCNN()).streams
        ('forget', 'retain')
    """

    in_words = (
        "The model was trained to say of the forgotten images what a network says that has learned nothing, and of "
        "images that must stay what it said before."
    )
    modality = "images"
    frozen_in_forget_term = True

    def __init__(self, network: Network, **kwargs: Any) -> None:
        super().__init__(network, retain_loss="kl", **kwargs)

    def on_train_start(self) -> None:
        """Make the incompetent teacher, again where a run goes on; refuse a network that only comes with weights."""
        super().on_train_start()
        data = self.run.data
        assert isinstance(self.recipe, ImageNetwork), "configure_model has refused others"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(data.seed ^ 1)  # the target's own training began with the network of data.seed
            teacher = self.run.convert(self.recipe.untrained().build(data, exact=False))
        self._teacher = [teacher.to(self.device)]  # a list, so that Lightning neither saves nor trains it

    def forget_losses(self, part: Batch) -> Tensor:
        """Divergences from the incompetent teacher."""
        with torch.no_grad():
            goal = self.recipe.logits(self._teacher[0], part)[0]
        return kl(*self.recipe.logits(self.trained, part), goal)
