"""Benchmarks of images, whose forget and retain splits are drawn: CIFAR-10, CIFAR-100 and scikit-learn's digits."""

from abc import abstractmethod
from typing import Any, Literal

import numpy as np
import torch

from ofmu_pl.data.image_base import SplitImages
from ofmu_pl.data.image_files import NAMES, Images, read_split
from ofmu_pl.data.sampler import keyed_generator
from ofmu_pl.data.split import Split, draw_split, sample_evenly
from ofmu_pl.support.errors import MAX_SEED, check_range


class ImageDataModule(SplitImages):
    """Labelled images of which some are to be forgotten: whole classes, or a random share.

    Args:
        forget_classes: Classes to forget, all their training images.
        forget_fraction: Share of the training images to forget, drawn at random, in place of whole classes.
        stratified: Draw that share from every class alike.
        validation_fraction: Share of the training images that no method sees.
        split_seed: Seed of the draws of validation and forget images.
        train_items: Use the first so many training images only; ``null``: all.
        kwargs: See ``SplitImages``, which has the attributes too.

    Example:
        A data set of your own says what its images are; here there are six, and class 1 shall be forgotten.

        >>> import torch
        >>> class Six(ImageDataModule):
        ...     name, classes, shape, mean, std = "six", 2, (1, 8, 8), (0.5,), (0.5,)
        ...     def read(self):
        ...         images, labels = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1, 0, 1])
        ...         return Images(images, labels, images, labels, ("light", "dark"))
        >>> data = Six(forget_classes=[1], validation_fraction=0, augment=False)
        >>> data.setup()
        >>> {name: rows.tolist() for name, rows in data.splits.items()}
        {'full': [0, 1, 2, 3, 4, 5], 'forget': [1, 3, 5], 'retain': [0, 2, 4], 'test': [1, 3, 5]}
    """

    classes: int
    """How many classes there are."""
    shape: tuple[int, int, int]
    """Channels, height and width."""

    def __init__(
        self,
        forget_classes: list[int] | None = None,
        forget_fraction: float | None = None,
        stratified: bool = False,
        validation_fraction: float = 0.1,
        split_seed: int = 0,
        train_items: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_range(0, MAX_SEED, split_seed=split_seed)
        self.forget_classes, self.forget_fraction, self.stratified = forget_classes or [], forget_fraction, stratified
        self.validation_fraction, self.split_seed = validation_fraction, split_seed
        self.train_items = train_items
        self._images: Images | None = None  # which other requests name rows of, too

    @abstractmethod
    def read(self) -> Images:
        """Read all images and labels."""

    def read_split(self) -> tuple[Images, Split]:
        """Read all images; draw those to forget and those to validate with from the training images."""
        data = self._images = self._images or self.read()
        check_range(1, len(data.labels), train_items=self.train_items)
        split = draw_split(
            data.labels[: self.train_items].numpy(),
            data.test_labels.numpy(),
            forget_classes=self.forget_classes,
            forget_fraction=self.forget_fraction,
            stratified=self.stratified,
            validation_fraction=self.validation_fraction,
            seed=self.split_seed,
        )
        return data, split

    def blank(self) -> None:
        """Stand in for ``setup`` with black images of the first class."""
        n = self.batch_size
        self.images, self.labels = torch.zeros(n, *self.shape, dtype=torch.uint8), torch.zeros(n, dtype=torch.int64)
        self.test_images, self.test_labels = self.images, self.labels
        self.class_names = tuple(map(str, range(self.classes)))
        every, none = np.arange(n), np.arange(0)
        self.split = Split(every, every, none, none, every, tuple(self.forget_classes))
        self.evaluation_sets = dict.fromkeys(("forget", "retain", "validation", "test"), every)
        self.splits = dict.fromkeys(("full", "forget", "retain"), every)

    @property
    def facts(self) -> dict[str, object]:
        """What is forgotten, and how it was drawn."""
        forgotten = list(self.split.forgotten) or self.forget_fraction
        return {"forgotten": forgotten, "split_seed": self.split_seed, "augment": self.augment}


class CIFAR10(ImageDataModule):
    """CIFAR-10, images of (3, 32, 32) (A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009).

    Args:
        data: Folder with parquet files in the schema of ``uoft-cs/cifar10`` (train and test, one file each or all
            shards, here or in a subfolder plain_text, data or cifar100), or a hub id of such data; ``null``: this one.
        kwargs: See ``ImageDataModule``.

    Example:
        >>> data = CIFAR10("~/data/cifar10", forget_fraction=0.1)
        >>> data.setup()  # doctest: +SKIP
        >>> data.name, data.classes, data.shape
        ('cifar10', 10, (3, 32, 32))
    """

    name = "cifar10"
    classes: Literal[10, 100] = 10
    shape = (3, 32, 32)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

    def __init__(self, data: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data = data

    def read(self) -> Images:
        """Decode all images."""
        source = self.data or f"uoft-cs/cifar{self.classes}"
        train, test = (read_split(source, split, self.classes) for split in ("train", "test"))
        return Images(*train, *test, NAMES[self.classes])


class CIFAR100(CIFAR10):
    """CIFAR-100 with its fine labels.

    Args:
        data: Folder with parquet files in the schema of ``uoft-cs/cifar100``, or a hub id; ``null``: this one.
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

    The test images are the same in every run, whatever its seed, with equal shares of all digits. Pixels 0..16 become
    round(255 * pixel / 16).

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998), its test part.

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
        """Read scikit-learn's own files, and draw the test images."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = torch.from_numpy(np.rint(digits.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
        labels = torch.from_numpy(digits.target.astype(np.int64))
        test = torch.zeros(len(labels), dtype=torch.bool)
        test[sample_evenly(digits.target, round(0.2 * len(labels)), keyed_generator("0/split/digits"))] = True
        names = tuple(str(name) for name in digits.target_names)
        return Images(images[~test], labels[~test], images[test], labels[test], names)
