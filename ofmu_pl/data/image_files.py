"""Images and labels from files: scikit-learn's digits, CIFAR-10 and CIFAR-100 as parquet or from torchvision."""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ofmu_pl.data.split import keyed_generator, sample_evenly
from ofmu_pl.support.errors import NotAtHand, UserError
from ofmu_pl.support.extras import extra
from ofmu_pl.support.hub import downloads_forbidden, local_folder
from ofmu_pl.support.kept import cache_folder

SIDE = 32
"""Height and width of CIFAR's images."""
FOLDERS = (".", "plain_text", "data", "cifar100")
"""Where parquet files may lie: the folder, or the hub's names of configurations."""
LABELS = {10: "label", 100: "fine_label"}
"""The column of labels, by number of classes."""
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


def read_digits() -> Images:
    """Handwritten digits that come with scikit-learn: 1,797 real 8x8 grey images, 1,438 to train and 359 to test.

    The test images are the same in every run, whatever its seed, with equal shares of all digits. Pixels 0..16 become
    round(255 * pixel / 16).

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998), its test part.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(np.rint(digits.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(digits.target.astype(np.int64))
    test = torch.zeros(len(labels), dtype=torch.bool)
    test[sample_evenly(digits.target, round(0.2 * len(labels)), keyed_generator(0, "digits"))] = True
    names = tuple(str(name) for name in digits.target_names)
    return Images(images[~test], labels[~test], images[test], labels[test], names)


def read_cifar(data: str | None, classes: Literal[10, 100]) -> Images:
    """Read CIFAR-10 or CIFAR-100, images of (3, 32, 32).

    Args:
        data: A folder with parquet files in the schema of ``uoft-cs/cifar10`` or ``uoft-cs/cifar100`` (train and test,
            one file each or all shards, here or in a subfolder plain_text, data or cifar100), or the folder that holds
            torchvision's ``cifar-10-batches-py`` or ``cifar-100-python``; ``None``: torchvision's copy in the cache
            folder, downloaded if it is not there.
        classes: Number of classes, 10 or 100.

    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
    """
    if data is None:
        return _read_torchvision(_own_copy(classes), classes)
    folder = local_folder(data, "data.data")
    for inner in (folder / name for name in FOLDERS) if folder else ():
        if any(inner.glob("*.parquet")):
            train, test = (_read_parquet(inner, split, classes) for split in ("train", "test"))
            return Images(*train, *test, NAMES[classes])
    base = _torchvision_class(classes).base_folder
    if folder and (folder / base).is_dir():
        return _read_torchvision(folder, classes)
    raise UserError(
        f"'{data}' holds neither train*.parquet and test*.parquet nor torchvision's '{base}': point `data.data` at the "
        f"folder that holds CIFAR-{classes}."
    )


def _read_parquet(folder: Path, split: str, classes: int) -> tuple[Tensor, Tensor]:
    """Decode the images of one file, or of all shards; 60,000 take some 6 s."""
    from pyarrow import parquet  # type: ignore[import-untyped]

    paths = sorted(folder.glob(f"{split}*.parquet"))
    shards = [re.search(r"-(\d{5})-of-(\d{5})", path.name) for path in paths]
    found = [(int(shard[1]), int(shard[2])) for shard in shards if shard]
    whole = [(i, len(paths)) for i in range(len(paths))]
    if not paths or (found != whole and (found or len(paths) > 1)):  # images would be left out, or there twice
        raise UserError(
            f"'{folder}' must hold {split}.parquet alone, or {split}-00000-of-NNNNN.parquet and all that follow, "
            f"and has {', '.join(path.name for path in paths) or 'none'}."
        )
    column = LABELS[classes]
    pixels, labels = [], []
    for path in paths:
        try:
            rows = parquet.read_table(path, columns=["img", column]).to_pylist()
            for row in rows:
                if row[column] not in range(classes):
                    raise ValueError(f"{column} {row[column]}")
                pixels.append(_decode(row["img"]["bytes"]))
                labels.append(row[column])
        except Exception as error:  # decoders answer damage with errors of many kinds
            raise UserError(
                f"'{path}' cannot be read as CIFAR-{classes} at image {len(pixels)} of {split} ({error!r:.200}): give "
                f"files in the schema of uoft-cs/cifar{classes}, with columns img and {column}."
            ) from error
    if not labels:
        raise UserError(f"'{paths[0]}' has no rows: copy it anew.")
    return _tensors(np.stack(pixels), labels)


def _decode(encoded: bytes) -> np.ndarray:
    """Decode an image to RGB pixels, (32, 32, 3) uint8."""
    with Image.open(BytesIO(encoded), formats=("PNG", "JPEG")) as image:
        if image.size != (SIDE, SIDE):
            raise ValueError(f"{image.size[0]} x {image.size[1]} pixels")
        return np.asarray(image.convert("RGB"))


def _torchvision_class(classes: int) -> Any:
    return getattr(extra("torchvision.datasets", f"Reading CIFAR-{classes} but from parquet files"), f"CIFAR{classes}")


def _own_copy(classes: int) -> Path:
    """The folder with torchvision's files in the cache; torchvision downloads what is missing."""
    remedy = "point `data.data` at a folder with its parquet or torchvision files"
    cache, dataset = cache_folder(), _torchvision_class(classes)
    if cache is None:
        raise UserError(
            f"OFMU_CACHE is empty, so there is no copy of CIFAR-{classes}: name a folder there, or {remedy}."
        )
    folder, before = cache / "torchvision", socket.getdefaulttimeout()
    socket.setdefaulttimeout(10.0)  # of a host that is silent; torchvision alone would wait for ever
    try:
        dataset(folder, download=not downloads_forbidden())
    except (OSError, HTTPException, RuntimeError) as error:
        raise NotAtHand(
            f"CIFAR-{classes} is not in '{folder}' and cannot be downloaded ({error}): try again with a network, or "
            f"{remedy}."
        ) from error
    finally:
        socket.setdefaulttimeout(before)
    return folder


def _read_torchvision(folder: Path, classes: int) -> Images:
    """Read the original pickles with torchvision.

    Unpickling runs whatever code a file holds. Torchvision does it only after a file's md5 has matched the published
    one, and nobody knows how to make another file with a given md5 (only two at once), so these are Krizhevsky's own.
    """
    dataset = _torchvision_class(classes)
    try:
        parts = [dataset(folder, train=train) for train in (True, False)]
    except RuntimeError as error:
        raise UserError(
            f"'{folder / dataset.base_folder}' is incomplete or fails torchvision's md5 check: unpack "
            f"{dataset.filename} anew there."
        ) from error
    train, test = (_tensors(part.data, part.targets) for part in parts)
    return Images(*train, *test, tuple(parts[0].classes))


def _tensors(pixels: np.ndarray, labels: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The images and labels that ``Images`` has, of (n, 32, 32, 3) uint8 pixels."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))), torch.tensor(labels)
