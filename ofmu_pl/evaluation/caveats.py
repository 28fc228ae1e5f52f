"""What is said before any number: that a target is not shown to know its rows, or that what must stay is lost."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import binomtest, mannwhitneyu
from torch import Tensor, nn

from ofmu_pl.data.image_base import SplitImages
from ofmu_pl.data.own_images import OwnImages
from ofmu_pl.data.sampler import evenly
from ofmu_pl.evaluation.reference import Scored
from ofmu_pl.metrics import Scores
from ofmu_pl.metrics.bootstrap import LEVEL
from ofmu_pl.metrics.membership import auc
from ofmu_pl.metrics.own_rows import as_rows
from ofmu_pl.metrics.tofu import attacked
from ofmu_pl.networks.vision import predict

Outputs = NDArray[Any]  # one entry an image
SO = "so nothing below shows that anything was forgotten"
TRIED = 512  # training images that are read otherwise
USUAL = {
    "mean 0 and std 1": ([0.0] * 3, [1.0] * 3),
    "mean and std 0.5": ([0.5] * 3, [0.5] * 3),
    "ImageNet's mean and std": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    "pixels from 0 to 255": ([0.0] * 3, [1 / 255] * 3),
}
"""Ways in which training programs normalise pixels in [0, 1]: mean and std of each channel."""


def guessed(scores: Scored, guess: float, *sides: str) -> bool:
    """Whether a model knows rows of a side (``forget``, ``retain``) no better than random guesses of ``guess`` nats."""
    names = [*sides, *(f"{side}_doc" for side in sides)]
    return any(scores[name].at_chance(guess) for name in names if name in scores)


def like_held_out(scores: Scores) -> str | None:
    """Say that forget rows are not shown to be better known than held-out rows; ``None``: they are, or there are none.

    Their losses, of whole answers or of facts, must be lower by one-sided rank tests at 5 %, corrected by Bonferroni;
    where rows are too few for any test, all must be lower.
    """
    for sides in (attacked(scores), attacked(as_rows(scores))):
        tests = [sides[name] for name in ("mia_loss", "mia_facts") if name in sides]
        p = [mannwhitneyu(*test, alternative="less").pvalue for test in tests]
        if p and min(p) * len(p) > LEVEL and not any(auc(*test) == 1 for test in tests):
            known, unseen = (f"{losses.mean():.2f}" for losses in tests[0])
            return (
                f"Nothing shows that the target knows the forget rows better than held-out rows (mean loss {known} and "
                f"{unseen} nats), {SO}: give the model that was trained on them, and the template of its training."
            )
    return None


def like_retained(scores: Scores) -> str | None:
    """Say that held-out rows are known as well as retain rows, and mostly right; ``None``: they are not.

    Their losses are below ln 2 on average, and a one-sided rank test at 5 % does not find them higher; where rows are
    too few for any test, not all are higher.
    """
    if not {"retain", "holdout"} <= scores.keys():
        return None
    kept, unseen = (scores[name].answer_loss for name in ("retain", "holdout"))
    higher = mannwhitneyu(kept, unseen, alternative="less").pvalue <= LEVEL or auc(kept, unseen) == 1
    if unseen.mean() >= np.log(2) or higher:
        return None
    return (
        "Nothing shows that the target knows held-out rows less well than rows that must stay (mean loss "
        f"{unseen.mean():.2f} and {kept.mean():.2f} nats). If it was trained on them, they are no goal, {SO}: give "
        "rows that it has never seen."
    )


def read_otherwise(model: nn.Module, data: SplitImages) -> str | None:
    """Say how images or classes must be read for most training images to be right, and many more than as given."""
    batch = data.plain("full", list(evenly(range(len(data.splits["full"])), TRIED)))
    images, labels = batch["images"], batch["labels"].numpy()
    given = predict(model, 255 * images).argmax(1).numpy()
    for way, pixels in _ways(images, data).items():
        told = _better(way, predict(model, 255 * pixels).argmax(1).numpy() == labels, given == labels)
        if told:
            return told
    mend = " (`data.classes` takes the order of its outputs)" if isinstance(data, OwnImages) else ""
    return _in_another_order(given, labels, data.class_names, mend)


def _ways(images: Tensor, data: SplitImages) -> dict[str, Tensor]:
    """Images of three channels as other programs read them, by what is said of it; (B, 3, H, W) in [0, 1]."""
    if data.channels != 3:
        return {}
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (data.mean, data.std))
    ways: dict[str, Tensor] = {"channels in the order blue, green, red": images.flip(1)}
    for way, numbers in USUAL.items():
        m, s = (torch.tensor(x).view(3, 1, 1) for x in numbers)
        ways[way] = (images - m) / s * std + mean  # which the network normalises to (images - m) / s
    return ways


def _in_another_order(given: Outputs, labels: Outputs, names: Sequence[str], mend: str) -> str | None:
    """Say which classes the network has elsewhere: the best order for one half of the images is tried on the other."""
    known, tried = slice(None, None, 2), slice(1, None, 2)
    size = max(len(names), int(given.max()) + 1)
    confusion = np.zeros((size, size))
    np.add.at(confusion, (labels[known], given[known]), 1)
    order = linear_sum_assignment(confusion, maximize=True)[1]
    moved = [c for c in np.unique(labels) if order[c] != c]
    named = " and ".join(f"'{names[c]}' as class {order[c]} instead of {c}" for c in moved[:2])
    way = f"{named} and so on" if len(moved) > 2 else named
    return _better(way + mend, given[tried] == order[labels[tried]], given[tried] == labels[tried])


def _better(way: str, otherwise: Outputs, given: Outputs) -> str | None:
    """Say what a way of reading gives, if most images are right by it, and many more (sign test, p below .001)."""
    more, less = int((otherwise & ~given).sum()), int((given & ~otherwise).sum())
    surely = more > less and binomtest(more, more + less, alternative="greater").pvalue < 0.001
    if not surely or otherwise.mean() <= 0.5:
        return None
    shares = f"{otherwise.mean():.0%} of its training images, as given on {given.mean():.0%}"
    return f"The target does not know its images as they are given: with {way} it is right on {shares}, {SO}."
