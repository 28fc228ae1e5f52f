"""Random labels on the forget images, and SalUn: the same on the most salient weights alone."""

from typing import Any

import torch
from torch import Tensor

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, zeros_like
from ofmu_pl.modules.base import Checkpoint
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import check_range


class RandomLabels(TwoTerms):
    """``gamma CE(forget images, random labels) + alpha L_r`` (Golatkar et al. 2020; RL in Fan et al. 2024).

    Each forget image has one wrong label for the whole run, drawn by the data's seed. (Published code draws anew at
    every pass, from all classes, the true one included, and from the first ten of CIFAR-100's by default. It steps on
    all forget batches and then on all retain ones; here each step has both terms.)

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> RandomLabels(SmallCNN()).streams
        ('forget', 'retain')
    """

    in_words = (
        "The model was trained to give each forgotten image a wrong class drawn at random, and to stay right "
        "on images that must stay."
    )
    modality = "images"

    def on_train_start(self) -> None:
        """Draw the labels."""
        super().on_train_start()
        data = self.run.data
        n, classes = len(data.splits["forget"]), len(data.class_names)
        generator = torch.Generator().manual_seed(data.seed)
        self.shifts = torch.randint(1, classes, (n,), generator=generator).to(self.device)
        self.classes = classes

    def forget_losses(self, part: Batch) -> Tensor:
        """Cross-entropies to the wrong labels, (b,)."""
        wrong = (part["labels"] + self.shifts[part["ids"]]) % self.classes
        return self.recipe.sample_losses(self.trained, part | {"labels": wrong})


class SalUn(RandomLabels):
    """Random labels moving the most salient weights only (Fan et al. 2024).

    A weight's saliency is ``|d L_f / d theta|`` of the whole forget set at the start, where images are augmented with
    one draw for each, whatever the batches. Weights outside the mask keep their bits whatever weight decay or momentum
    would do to them (until 2026-02 the published code froze only their gradients).

    Args:
        fraction: Share of the weights that may move (published: 0.5).
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> SalUn(SmallCNN(), fraction=0.3).fraction
        0.3
    """

    in_words = (
        "The model was trained to give each forgotten image a wrong class drawn at random, and to stay right "
        "on images that must stay. Only the weights that mattered most for the forgotten images were moved."
    )

    def __init__(self, network: Network, fraction: float = 0.5, **kwargs: Any) -> None:
        super().__init__(network, **kwargs)
        check_range(0, 1, above=True, fraction=fraction)
        self.fraction = fraction
        self.masks: Vector = []

    def on_train_start(self) -> None:
        """Compute the mask; a resumed run has it from its checkpoint."""
        super().on_train_start()
        if self.masks:
            self.masks = [m.to(self.device) for m in self.masks]
            return
        parameters, data = trainable(self.trained), self.run.data
        engine = self.gradient_engine()
        gradient = zeros_like(parameters)
        n = len(data.splits["forget"])
        for start in range(0, n, data.batch_size):
            # Drawn one by one: what is drawn for an image depends on those beside it.
            images = [data.collate("forget", [i], i) for i in range(start, min(start + data.batch_size, n))]
            batch = {}
            for k in images[0]:
                batch[k] = torch.cat([x[k] for x in images]).to(self.device)
            engine.add_gradient(gradient, len(images) / n, self.loss(batch))
        self.charge(1.0, n)
        self.masks = top_fraction(gradient, self.fraction)

    def descend(self, gradient: Vector, **given: float) -> None:
        """Take one step that leaves the weights outside the mask as they are."""
        parameters = trainable(self.trained)
        before = [p.detach().clone() for p in parameters]
        super().descend([g * m for g, m in zip(gradient, self.masks, strict=True)], **given)
        with torch.no_grad():
            for p, old, m in zip(parameters, before, self.masks, strict=True):
                p.copy_(torch.where(m, p, old))

    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add the mask to a checkpoint: the gradients that it came from are gone."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["masks"] = self.masks

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Restore the mask from a checkpoint."""
        super().go_on_from(checkpoint)
        self.masks = checkpoint["masks"]


def top_fraction(vector: Vector, fraction: float) -> Vector:
    """Masks of the ``fraction`` of all entries with the largest magnitudes (at least one; ties at the edge are in)."""
    sizes = torch.cat([x.abs().flatten() for x in vector])
    k = max(1, round(fraction * len(sizes)))
    edge = sizes.kthvalue(len(sizes) - k + 1).values
    return [x.abs() >= edge for x in vector]
