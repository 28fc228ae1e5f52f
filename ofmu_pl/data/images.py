"""Images in memory with forget and retain splits: CIFAR-10, CIFAR-100 and scikit-learn's digits."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.image_files import Images, read_cifar, read_digits
from ofmu_pl.data.split import Split, draw_split
from ofmu_pl.support.errors import MAX_SEED, UserError, check_range


class ImageDataModule(PairedDataModule):
    """Labelled images of which some are to be forgotten: whole classes, or a random share.

    Args:
        forget_classes: Classes to forget, all their training images.
        forget_fraction: Share of the training images to forget, drawn at random, in place of whole classes.
        stratified: Draw that share from every class alike.
        validation_fraction: Share of the training images that no method sees.
        split_seed: Seed of the draws of validation and forget images.
        train_items: Use the first so many training images only; ``null``: all.
        augment: Crop (by up to 4 pixels) and flip training images at random.
        batch_size: Images per batch. kwargs: See ``PairedDataModule``.

    Attributes:
        splits: Positions of the ``full``, ``forget`` and ``retain`` training images.
        evaluation_sets: Positions of the ``forget``, ``retain``, ``validation`` (training) and ``test`` images.
        hashes: Content hash of each split and evaluation set.
        split: The split itself.
        class_names: Name of each class.

    Example:
        A data set of your own says what its images are; here there are six, and class 1 shall be forgotten.

        >>> class Six(ImageDataModule):
        ...     name, classes, shape, mean, std = "six", 2, (1, 8, 8), (0.5,), (0.5,)
        ...     def read(self):
        ...         images, labels = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1, 0, 1])
        ...         return Images(images, labels, images, labels, ("light", "dark"))
        >>> data = Six(forget_classes=[1], validation_fraction=0, augment=False)
        >>> data.setup()
        >>> {name: rows.tolist() for name, rows in data.splits.items()}
        {'full': [0, 1, 2, 3, 4, 5], 'forget': [1, 3, 5], 'retain': [0, 2, 4]}
    """

    modality = "images"
    mean: ClassVar[tuple[float, ...]]
    std: ClassVar[tuple[float, ...]]
    classes: ClassVar[Any]
    shape: ClassVar[tuple[int, int, int]]
    """Channels, height and width."""
    split: Split

    def __init__(
        self,
        forget_classes: list[int] | None = None,
        forget_fraction: float | None = None,
        stratified: bool = False,
        validation_fraction: float = 0.1,
        split_seed: int = 0,
        train_items: int | None = None,
        augment: bool = True,
        batch_size: int = 128,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size, **kwargs)
        check_range(0, MAX_SEED, split_seed=split_seed)
        self.forget_classes, self.forget_fraction, self.stratified = forget_classes or [], forget_fraction, stratified
        self.validation_fraction, self.split_seed = validation_fraction, split_seed
        self.train_items, self.augment = train_items, augment

    @abstractmethod
    def read(self) -> Images:
        """Read all images and labels."""

    def setup(self, stage: str | None = None) -> None:
        """Read the images, draw the split, check and hash it; once.

        Raises:
            UserError: The files or the split that was asked for cannot be had.
        """
        if self.splits:
            return
        data = self.read()
        n = len(data.labels)
        if self.train_items is not None and not 0 < self.train_items <= n:
            raise UserError(
                f"There are {n} training images, not {self.train_items}: set --data.train_items to 1 to {n}."
            )
        self.images, self.labels = data.images[: self.train_items], data.labels[: self.train_items]
        self.test_images, self.test_labels, self.class_names = data.test_images, data.test_labels, data.names
        self.split = draw_split(
            self.labels.numpy(),
            self.test_labels.numpy(),
            forget_classes=self.forget_classes,
            forget_fraction=self.forget_fraction,
            stratified=self.stratified,
            validation_fraction=self.validation_fraction,
            seed=self.split_seed,
        )
        self.hashes = self.split.hashes(data.hash)
        s = self.split
        splits = {"full": s.full, "forget": s.forget, "retain": s.retain}
        self.require(splits)
        self.evaluation_sets = {name: getattr(s, name) for name in ("forget", "retain", "validation", "test")}
        self.splits = splits  # last: it marks a set-up that went well

    def blank(self) -> None:
        """Stand in for ``setup`` with black images of the first class."""
        n = self.batch_size
        self.images, self.labels = torch.zeros(n, *self.shape, dtype=torch.uint8), torch.zeros(n, dtype=torch.int64)
        self.test_images, self.test_labels = self.images, self.labels
        self.class_names = tuple(map(str, range(self.classes)))
        all_of_them = np.arange(n)
        self.split = Split(
            all_of_them, all_of_them, all_of_them[:0], all_of_them[:0], all_of_them, tuple(self.forget_classes)
        )
        self.evaluation_sets = dict.fromkeys(("forget", "retain", "validation", "test"), all_of_them)
        self.splits = dict.fromkeys(("full", "forget", "retain"), all_of_them)

    @property
    def channels(self) -> int:
        """Number of channels of an image."""
        return self.images.shape[1]

    @property
    def facts(self) -> dict[str, Any]:
        """What is forgotten, and how it was drawn."""
        forgotten = list(self.split.forgotten) or self.forget_fraction
        return {"forgotten": forgotten, "split_seed": self.split_seed, "augment": self.augment}

    def images_of(self, name: str) -> tuple[Tensor, Tensor]:
        """(N, C, H, W) uint8 images and (N,) labels of an evaluation set."""
        index = torch.from_numpy(self.evaluation_sets[name].copy())
        if name == "test":
            return self.test_images[index], self.test_labels[index]
        return self.images[index], self.labels[index]

    def collate(self, stream: str, index: list[int], number: int) -> dict[str, Tensor]:
        """``images`` (B, C, H, W) in [0, 1], augmented; ``labels`` (B,); ``ids`` (B,), positions in the stream."""
        rows = torch.from_numpy(self.splits[stream][index])
        images = self.images[rows].float() / 255
        if self.augment:
            key = hashlib.sha256(f"{self.seed}/augment/{stream}/{number}".encode()).digest()[:8]
            images = augmented(images, torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1))
        return {"images": images, "labels": self.labels[rows], "ids": torch.tensor(index)}


class CIFAR10(ImageDataModule):
    """CIFAR-10 (Krizhevsky 2009).

    Args:
        data: Folder with parquet files in the schema of ``uoft-cs/cifar10``, or torchvision's folder; ``null``:
            download.
        kwargs: See ``ImageDataModule``.

    Example:
        >>> data = CIFAR10("~/data/cifar10", forget_fraction=0.1)
        >>> data.setup()  # doctest: +SKIP
        >>> data.name, data.classes, data.shape
        ('cifar10', 10, (3, 32, 32))
    """

    name = "cifar10"
    classes: ClassVar[Any] = 10
    shape = (3, 32, 32)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

    def __init__(self, data: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data = data

    def read(self) -> Images:
        """Decode the files once; later runs take the pixels from the cache."""
        return read_cifar(self.data, self.classes)


class CIFAR100(CIFAR10):
    """CIFAR-100 with its fine labels.

    Args:
        data: Folder with parquet files in the schema of ``uoft-cs/cifar100``, or torchvision's folder; ``null``:
            download.
        kwargs: See ``ImageDataModule``.

    Example:
        >>> data = CIFAR100("~/data/cifar100", forget_classes=[0])
        >>> data.setup()  # doctest: +SKIP
        >>> data.name, data.classes, data.shape
        ('cifar100', 100, (3, 32, 32))
    """

    name = "cifar100"
    classes = 100
    mean, std = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)


class Digits(ImageDataModule):
    """Scikit-learn's 1,797 handwritten digits of 8 x 8 pixels: real images that need no download.

    Args:
        batch_size: Images a batch.
        augment: Crop and flip at random; off, since a mirrored digit is no digit.
        kwargs: See ``ImageDataModule``.

    Example:
        >>> data = Digits(forget_classes=[3])
        >>> data.setup()
        >>> {name: len(rows) for name, rows in data.evaluation_sets.items()}
        {'forget': 131, 'retain': 1163, 'validation': 144, 'test': 359}
        >>> data.iteration(0)["retain"][0]["images"].shape
        torch.Size([64, 1, 8, 8])
    """

    name = "digits"
    classes, shape = 10, (1, 8, 8)
    mean, std = (0.305,), (0.376,)

    def __init__(self, batch_size: int = 64, augment: bool = False, **kwargs: Any) -> None:
        super().__init__(batch_size=batch_size, augment=augment, **kwargs)

    def read(self) -> Images:
        """Read scikit-learn's own files."""
        return read_digits()


def augmented(images: Tensor, generator: torch.Generator, pad: int = 4) -> Tensor:
    """Crops at random offsets of the zero-padded images, half of them mirrored; all images at once.

    Args:
        images: Images, (B, C, H, W).
        generator: Draws offsets and mirrors.
        pad: Pixels added on each side.
    """
    b, _, h, w = images.shape
    top, left = torch.randint(0, 2 * pad + 1, (2, b, 1), generator=generator)
    mirror = torch.rand(b, 1, generator=generator) < 0.5
    rows = top + torch.arange(h)
    columns = left + torch.where(mirror, torch.arange(w - 1, -1, -1), torch.arange(w))
    padded = F.pad(images, (pad, pad, pad, pad))
    item = torch.arange(b).view(b, 1, 1)
    return padded[item, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)
