"""Images and labels: scikit-learn's digits, CIFAR-10 and CIFAR-100 from parquet files or the hub."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from PIL import EpsImagePlugin, Image, ImageFile
from torch import Tensor

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import from_hub
from ofmu_pl.data.row_formats import parquet_rows
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.hub import local_folder

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "AVIF", "JPEG2000", "TGA", "ICO")
"""Formats that are read, whatever the file's name is; PIL decodes them by itself."""


def _starts_no_program(*_: object) -> ImageFile.ImageFile:
    raise SyntaxError("PostScript, which another program would have to draw")


# Here PIL is first imported. For this format, of whatever name, it would start Ghostscript, also for others' data sets.
Image.register_open(EpsImagePlugin.EpsImageFile.format, _starts_no_program)

FOLDERS = (".", "plain_text", "data", "cifar100")
"""Where parquet files may lie: the folder, or the hub's names of configurations."""
NAMES: dict[int, tuple[str, ...]] = {
    10: tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
    100: tuple(
        """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
        castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
        elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
        man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
        pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
        skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
        tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm""".split()
    ),
}
"""The classes in the order of their labels."""


@dataclass(frozen=True, eq=False)
class Images:
    """A labelled image data set in memory.

    Attributes:
        images: Training images, (N, channels, height, width) uint8; 1 or 3 channels (RGB).
        labels: Labels of the training images, (N,) int64.
        test_images: Test images, (M, channels, height, width) uint8.
        test_labels: Labels of the test images, (M,) int64.
        names: Names of the classes, in the order of their labels.
    """

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    names: tuple[str, ...]

    @cached_property
    def hash(self) -> str:
        """The first 16 hex digits of SHA-256 over shapes, pixels and labels; computed once."""
        digest = hashlib.sha256()
        for part in (self.images, self.labels, self.test_images, self.test_labels):
            array = part.numpy()
            digest.update(str(array.shape).encode())
            digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        return digest.hexdigest()[:16]


def read_split(source: str, split: str, classes: int) -> tuple[Tensor, Tensor]:
    """Decode CIFAR's images of the training or the test part; 60,000 take some 6 s."""
    folder, column = local_folder(source, "data.data"), "label" if classes == 10 else "fine_label"
    rows = from_hub(source, None, split, "data.data").rows if folder is None else _parquet_rows(folder, split, column)
    pixels, labels = [], []
    try:
        for row in rows:
            if row[column] not in range(classes):
                raise ValueError(f"{column} {row[column]}")
            pixels.append(_decode(row["img"]))
            labels.append(row[column])
        images = np.stack(pixels).transpose(0, 3, 1, 2)
    except UserError:
        raise
    except Exception as error:  # decoders answer damage with errors of many kinds
        raise UserError(
            f"'{source}' cannot be read as CIFAR-{classes} at image {len(pixels)} of {split} ({error!r:.200}): give "
            f"files in the schema of uoft-cs/cifar{classes}, with columns img and {column}."
        ) from error
    return torch.from_numpy(np.ascontiguousarray(images)), torch.tensor(labels)


def _parquet_rows(folder: Path, split: str, column: str) -> Iterator[Row]:
    """The rows of one file, or of all shards."""
    paths = sorted(chain.from_iterable((folder / inner).glob(f"{split}*.parquet") for inner in FOLDERS))
    names = [path.name for path in paths]
    shards = [f"{split}-{i:05}-of-{len(paths):05}" for i in range(len(paths))]
    whole = bool(paths) and [name[: len(shards[0])] for name in names] == shards
    if not whole and names != [f"{split}.parquet"]:  # images would be left out, or there twice
        raise UserError(
            f"'{folder}' must hold {split}.parquet alone, or {split}-00000-of-NNNNN.parquet and all that follow, and "
            f"has {', '.join(names) or 'none'}: point `data.data` at the folder that holds CIFAR."
        )
    for path in paths:
        yield from parquet_rows(path, ["img", column])


def _decode(image: Image.Image | dict[str, bytes]) -> np.ndarray:
    """An image's RGB pixels, (32, 32, 3) uint8; the hub has images decoded already."""
    if isinstance(image, dict):
        image = Image.open(BytesIO(image["bytes"]), formats=("PNG", "JPEG"))
    if image.size != (32, 32):
        raise ValueError(f"{image.size[0]} x {image.size[1]} pixels")
    return np.asarray(image.convert("RGB"))
