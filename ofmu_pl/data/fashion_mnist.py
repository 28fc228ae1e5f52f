"""Fashion-MNIST, and other images in IDX files such as MNIST's."""

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ofmu_pl.data.image_files import Images
from ofmu_pl.data.images import ImageDataModule
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import opened, regular

DEBIAN = "/usr/share/datasets/fashion-mnist"  # where Debian's package `dataset-fashion-mnist` puts its four files
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MOST = 10**9  # bytes of a file that are read at most; EMNIST's largest has 550 million
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""The classes in the order of their labels."""


class FashionMNIST(ImageDataModule):
    """Fashion-MNIST: 60,000 training and 10,000 test images of clothes, (1, 28, 28), ten classes of equal size.

    A folder with the files of MNIST or KMNIST is read alike; its classes have the names of Fashion-MNIST's.

    Args:
        data: Folder with the four IDX files, packed by gzip or not, under the names that MNIST gave them.
        augment: Crop and flip at random.
        kwargs: See ``ImageDataModule``.

    Source: H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST (arXiv 1708.07747, 2017; MIT licence).

    Example:
        >>> data = FashionMNIST(forget_classes=[0])
        >>> data.setup()  # doctest: +SKIP
        >>> data.name, data.shape
        ('fashion-mnist', (1, 28, 28))
    """

    name = "fashion-mnist"
    classes, shape = 10, (1, 28, 28)
    mean, std = (0.2860,), (0.3530,)

    def __init__(self, data: str = DEBIAN, augment: bool = False, **kwargs: Any) -> None:
        super().__init__(augment=augment, **kwargs)
        self.data = data

    def read(self) -> Images:
        """Read the four files.

        Raises:
            UserError: A file is missing, damaged or of another shape, or a label has no class.
        """
        folder = Path(self.data).expanduser()
        images, labels, test_images, test_labels = (_read_idx(folder, name) for name in FILES)
        for part, theirs in ((images, labels), (test_images, test_labels)):
            if part.shape[1:] != self.shape[1:] or theirs.shape != part.shape[:1] or int(theirs.max()) >= self.classes:
                raise UserError(
                    f"'{folder}' holds images of {tuple(part.shape)} and labels of {tuple(theirs.shape)} up to "
                    f"{int(theirs.max())}: give the files of images of 28 x 28 pixels in {self.classes} classes."
                )
        return Images(images.unsqueeze(1), labels.long(), test_images.unsqueeze(1), test_labels.long(), CLASSES)


def _read_idx(folder: Path, name: str) -> Tensor:
    """An array of unsigned bytes from an IDX file: two zeros, the type, the number of sizes, the sizes, the bytes."""
    path = next((p for p in (folder / f"{name}.gz", folder / name) if p.exists()), None)
    if path is None:
        raise UserError(
            f"'{folder}' has no {name}.gz: install Debian's dataset-fashion-mnist, or point data.data at its files."
        )
    try:
        with opened(regular(path)) as file:
            zeros, kind, sizes = file.read(2), *file.read(2)
            if zeros != b"\0\0" or kind != 8:
                raise ValueError("it does not begin as a file of unsigned bytes")
            shape = [int.from_bytes(file.read(4)) for _ in range(sizes)]
            if math.prod(shape) > MOST:
                raise ValueError(f"it says that it holds {math.prod(shape)} bytes")
            pixels = file.read(math.prod(shape) + 1)
        return torch.from_numpy(np.frombuffer(pixels, np.uint8).reshape(shape).copy())
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"'{path}' is no sound IDX file ({error}): fetch it anew.") from error
