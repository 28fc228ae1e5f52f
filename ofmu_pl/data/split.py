"""Which images are forgotten, retained, kept for validation and tested on: drawn once, never changed, named by hashes.

Original training, retraining, unlearning and evaluation share one ``Split``. If each drew its own with another seed,
about a tenth of the images to forget would never have been trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from ofmu_pl.data.sampler import keyed_generator
from ofmu_pl.support.errors import UserError

PARTS = ("full", "forget", "retain", "validation", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """The parts of an image data set as sorted indices: read-only copies, (n,) int64, of what is passed.

    Attributes:
        full: Training images that the target was trained on, forget + retain + gone.
        forget: Training images to forget.
        retain: Training images to keep, on which a retrained model is trained.
        validation: Training images in neither of the two.
        test: Test images, classes to forget included, as one test set serves every forget set.
        forgotten: The classes that are forgotten whole, sorted; ``()`` if single images are.
        gone: Training images that the target was trained on and that other requests name: neither in forget nor in
            retain.

    Raises:
        ValueError: An index occurs twice, full is not forget + retain + gone, or validation overlaps with full.
    """

    full: np.ndarray
    forget: np.ndarray
    retain: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    forgotten: tuple[int, ...] = ()
    gone: np.ndarray = field(default_factory=lambda: np.arange(0))

    def __post_init__(self) -> None:
        for name in (*PARTS, "gone"):
            indices = np.sort(np.asarray(getattr(self, name), dtype=np.int64))
            if (np.diff(indices) == 0).any():
                raise ValueError(f"'{name}' has an index twice.")
            # An array over bytes: unlike one whose flag was cleared, it can never be made writable again.
            object.__setattr__(self, name, np.frombuffer(indices.astype("<i8").tobytes(), dtype="<i8"))
        if not np.array_equal(np.sort(np.concatenate([self.forget, self.retain, self.gone])), self.full):
            raise ValueError("'full' is not 'forget' and 'retain' together, and what is gone.")
        if np.isin(self.validation, self.full).any():
            raise ValueError("'validation' overlaps with 'full'.")

    def without(self, other: Split) -> Split:
        """This split beside another one's request: what that one forgets is not retained.

        Args:
            other: A split of the same images.
        """
        return replace(
            self,
            retain=np.setdiff1d(self.retain, other.forget),
            gone=np.union1d(self.gone, np.setdiff1d(other.forget, self.forget)),
            forgotten=tuple(sorted({*self.forgotten, *other.forgotten})),
        )

    def hashes(self, images_hash: str) -> dict[str, str]:
        """A hash of each part: equal if and only if the images and the indices are.

        Args:
            images_hash: Hash of the images and labels (``Images.hash``).

        Returns:
            For each part the first 16 hex digits of SHA-256(images_hash, name, indices as little-endian int64).
        """
        return {
            name: hashlib.sha256(f"{images_hash}/{name}/".encode() + getattr(self, name).tobytes()).hexdigest()[:16]
            for name in PARTS
        }


def draw_split(
    labels: ArrayLike,
    test_labels: ArrayLike,
    *,
    forget_classes: Sequence[int] = (),
    forget_fraction: float | None = None,
    stratified: bool = False,
    validation_fraction: float = 0.1,
    seed: int = 0,
) -> Split:
    """Draw the parts from the seed and the labels alone, alike in any process.

    Validation is drawn first and without regard to what is forgotten, so that one target serves every forget
    set; it holds equal shares of all classes. Jia et al. (NeurIPS 2023) hold out 10 % of CIFAR-10 in this way and
    forget one class (4,500 images) or 10 % of the 45,000 at random, unstratified.

    Args:
        labels: Labels of the training images, (N,), integers from 0.
        test_labels: Labels of the test images, (M,).
        forget_classes: Forget all training images of these classes that are not in validation.
        forget_fraction: Forget round(fraction * len(full)) images drawn at random instead.
        stratified: Draw equal shares of all classes (random images only).
        validation_fraction: Share of the training images to hold out; 0: none.
        seed: Seed of both draws.

    Raises:
        UserError: Both or neither of classes and fraction are given, or nothing is left to forget or to retain.
    """
    labels, test_labels = np.asarray(labels), np.asarray(test_labels)
    if (len(forget_classes) > 0) == (forget_fraction is not None):
        given = "neither of" if forget_fraction is None else "both"
        raise UserError(
            f"You gave {given} data.forget_classes and data.forget_fraction: give the classes to forget, or the "
            "share of images to forget at random."
        )
    if not 0 <= validation_fraction < 1:
        raise UserError(
            f"data.validation_fraction is {validation_fraction}: give a share from 0 to below 1, such as 0.1."
        )
    held_out = round(validation_fraction * len(labels))
    validation = sample_evenly(labels, held_out, keyed_generator(f"{seed}/split/validation"))
    full = np.setdiff1d(np.arange(len(labels)), validation)
    if forget_fraction is None:
        forget = _of_classes(labels, test_labels, full, forget_classes)
    else:
        forget = _at_random(labels, full, forget_fraction, stratified, keyed_generator(f"{seed}/split/forget"))
    return Split(
        full=full,
        forget=forget,
        retain=np.setdiff1d(full, forget),
        validation=validation,
        test=np.arange(len(test_labels)),
        forgotten=tuple(sorted(int(label) for label in forget_classes)),
    )


def sample_evenly(labels: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw without replacement so that every class gives its share as nearly as whole numbers allow.

    Class c with n_c of n items gives count * n_c / n of them, rounded down; the classes with the largest remainders
    give one more each until ``count`` is reached (the lower class where remainders tie).

    Args:
        labels: Labels to draw from, (n,) integers.
        count: Number of items to draw, 0 to n.
        generator: Draws within the classes, one after the other.

    Returns:
        Positions in ``labels``, (count,), sorted.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    shares, remainders = np.divmod(count * sizes, max(len(labels), 1))
    shares[np.argsort(-remainders, kind="stable")[: count - shares.sum()]] += 1
    drawn = [
        generator.permutation(np.flatnonzero(labels == label))[:share]
        for label, share in zip(classes, shares, strict=True)
    ]
    return np.sort(np.concatenate(drawn)) if drawn else np.arange(0)


def _of_classes(
    labels: np.ndarray, test_labels: np.ndarray, full: np.ndarray, forget_classes: Sequence[int]
) -> np.ndarray:
    highest = max(labels.max(initial=-1), test_labels.max(initial=-1))
    if len(set(forget_classes)) < len(forget_classes):
        raise UserError(f"data.forget_classes {list(forget_classes)} has a class twice: name each once.")
    for label in forget_classes:
        if not 0 <= label <= highest:
            raise UserError(
                f"data.forget_classes has {label}, but the images have classes 0 to {highest}: choose among these."
            )
        if not (labels[full] == label).any():
            raise UserError(
                f"data.forget_classes has {label}, of which no training image is left beside validation: forget "
                "another class, or lower data.validation_fraction."
            )
    forget = full[np.isin(labels[full], forget_classes)]
    if len(forget) == len(full):
        raise UserError("data.forget_classes names every class, which leaves nothing to retain: leave one out.")
    return forget


def _at_random(
    labels: np.ndarray, full: np.ndarray, fraction: float, stratified: bool, generator: np.random.Generator
) -> np.ndarray:
    if not 0 < fraction < 1:
        raise UserError(f"data.forget_fraction is {fraction}: give a share between 0 and 1, such as 0.1.")
    count = round(fraction * len(full))
    if not 0 < count < len(full):
        raise UserError(
            f"data.forget_fraction {fraction} of {len(full)} training images is {count}: give a share that leaves at "
            "least one image to forget and one to retain."
        )
    drawn = sample_evenly(labels[full], count, generator) if stratified else generator.permutation(len(full))[:count]
    return full[drawn]
