"""Images and labels from files: scikit-learn's digits, CIFAR-10 and CIFAR-100 as parquet or from torchvision."""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import PIL
import torch
from lightning.pytorch.utilities import rank_zero_warn
from PIL import Image, features
from torch import Tensor

from ofmu_pl.data.split import keyed_generator, sample_evenly
from ofmu_pl.errors import UserError
from ofmu_pl.files import cache_folder, content_path, replacing

SIDE = 32
"""Height and width of CIFAR's images."""
FOLDERS = (".", "plain_text", "data", "cifar100")
"""Where parquet files may lie: the folder, or the hub's names of configurations."""
LABELS: dict[int, str] = {10: "label", 100: "fine_label"}
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

Part = tuple[np.ndarray, np.ndarray]
"""Pixels, (n, 32, 32, 3) uint8, and labels, (n,) int64, of the training or the test images."""


@dataclass(frozen=True, eq=False)
class Images:
    """A labelled image data set in memory.

    Attributes:
        images: Training images, (N, channels, height, width) uint8; 1 or 3 channels (RGB).
        labels: (N,) int64.
        test_images: (M, channels, height, width) uint8.
        test_labels: (M,) int64.
        names: Of the classes, in the order of their labels.
    """

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    names: tuple[str, ...]

    @cached_property
    def hash(self) -> str:
        """The first 16 hex digits of SHA-256 over shapes, pixels and labels; taken once."""
        digest = hashlib.sha256()
        for part in (self.images, self.labels, self.test_images, self.test_labels):
            array = part.numpy()
            digest.update(str(array.shape).encode())
            digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        return digest.hexdigest()[:16]


def read_digits() -> Images:
    """Handwritten digits that come with scikit-learn: 1,797 real 8x8 grey images, 1,438 to train and 359 to test.

    The test part has equal shares of all digits and is the same in every run, whatever its seed. Pixels 0..16 become
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


def read_cifar(data: str | None, classes: Literal[10, 100], download: bool) -> Images:
    """CIFAR-10 or CIFAR-100: images of (3, 32, 32).

    Args:
        data: A folder with parquet files in the schema of ``uoft-cs/cifar10`` or ``uoft-cs/cifar100`` (train and test,
            one file each or all shards, here or in a subfolder plain_text, data or cifar100; the decoded pixels are
            kept in the cache folder, 184 MB), or the folder that holds torchvision's ``cifar-10-batches-py`` or
            ``cifar-100-python``; ``None``: torchvision's copy in the cache folder.
        classes: Which of the two.
        download: Let torchvision download that copy if it is not there; for ``data=None`` only.

    Raises:
        UserError: Files are missing, incomplete, damaged or not CIFAR's, or there is no network.

    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
    """
    if data is None:
        return _read_torchvision(_own_copy(classes, download), classes)
    folder = Path(data).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"The data folder '{data}' does not exist: point --data.data at a folder with CIFAR-{classes}'s parquet "
            "files or with torchvision's files."
        )
    files = _find_parquet(folder)
    if files is not None:
        return _read_parquet(files, classes)
    inner = _torchvision_class(classes).base_folder
    if (folder / inner).is_dir():
        return _read_torchvision(folder, classes)
    raise UserError(
        f"'{folder}' holds neither train*.parquet and test*.parquet nor torchvision's '{inner}': point --data.data at "
        f"the folder that holds CIFAR-{classes}."
    )


def _torchvision_class(classes: int) -> Any:
    from torchvision.datasets import CIFAR10, CIFAR100  # type: ignore[import-untyped]

    return {10: CIFAR10, 100: CIFAR100}[classes]


def _own_copy(classes: int, download: bool) -> Path:
    """The folder with torchvision's files in the cache."""
    remedy = "point --data.data at a folder with its parquet or torchvision files"
    cache, dataset = cache_folder(), _torchvision_class(classes)
    if cache is None:
        raise UserError(
            f"OFMU_CACHE is empty, so there is no copy of CIFAR-{classes}: name a folder there, or {remedy}."
        )
    folder = cache / "torchvision"
    if download:
        try:
            with _network_timeout(10.0):
                dataset(folder, download=True)
        except (OSError, HTTPException, RuntimeError) as error:
            raise UserError(
                f"CIFAR-{classes} cannot be downloaded to '{folder}' ({error}): try again with a network, or {remedy}."
            ) from error
    elif not (folder / dataset.base_folder).is_dir():
        raise UserError(f"CIFAR-{classes} is not in '{folder}': set --data.download=true, or {remedy}.")
    return folder


@contextmanager
def _network_timeout(seconds: float) -> Iterator[None]:
    """Sockets give up on a host that is silent for so long: torchvision would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _read_torchvision(folder: Path, classes: int) -> Images:
    """Read the original pickles by torchvision.

    Unpickling runs whatever code a file holds. It is accepted here because torchvision unpickles a file only after its
    md5 has matched the published one, and nobody knows how to make another file with a given md5 (what is broken is to
    make two such files at once), so these are Krizhevsky's own files.

    Raises:
        UserError: A file is missing or another one; none has been unpickled then.
    """
    dataset = _torchvision_class(classes)
    try:
        parts = [dataset(folder, train=train) for train in (True, False)]
    except RuntimeError as error:
        raise UserError(
            f"'{folder / dataset.base_folder}' is incomplete or fails torchvision's md5 check: unpack "
            f"{dataset.filename} anew there."
        ) from error
    train, test = ((part.data, np.asarray(part.targets, dtype=np.int64)) for part in parts)
    return _images(train, test, parts[0].classes)


def _images(train: Part, test: Part, names: Sequence[str]) -> Images:
    images, test_images = (
        torch.from_numpy(np.ascontiguousarray(part[0].transpose(0, 3, 1, 2))) for part in (train, test)
    )
    return Images(images, torch.from_numpy(train[1]), test_images, torch.from_numpy(test[1]), tuple(names))


def _find_parquet(folder: Path) -> dict[str, list[Path]] | None:
    """The files of ``train`` and ``test``, in order; ``None`` if there is none of either.

    Raises:
        UserError: One of them is missing or incomplete.
    """
    for inner in (folder / name for name in FOLDERS):
        files = {split: sorted(inner.glob(f"{split}*.parquet")) for split in ("train", "test")}
        if any(files.values()):
            for split, paths in files.items():
                _check_complete(inner, split, paths)
            return files
    return None


def _check_complete(folder: Path, split: str, paths: list[Path]) -> None:
    """Refuse all but one file or one full set of shards: others would leave out images, or hold them twice."""
    if not paths:
        raise UserError(f"'{folder}' has no {split}*.parquet: put it beside the other parquet files.")
    shards = [re.search(r"-(\d{5})-of-(\d{5})", path.name) for path in paths]
    found = [(int(shard[1]), int(shard[2])) for shard in shards if shard]
    if (found or len(paths) > 1) and found != [(i, len(paths)) for i in range(len(paths))]:
        raise UserError(
            f"{', '.join(path.name for path in paths)} in '{folder}' are not one file or one full set of shards: keep "
            f"{split}.parquet alone, or {split}-00000-of-NNNNN.parquet and all that follow."
        )


def _read_parquet(files: dict[str, list[Path]], classes: int) -> Images:
    """Decode the files, or take from the cache what decoding them gave before."""
    path, folder = None, cache_folder()
    if folder is not None:
        facts = {
            "files": {split: [_file_hash(p) for p in paths] for split, paths in files.items()},
            "classes": classes,
            "decoder": [PIL.__version__, features.version("libjpeg_turbo")],  # JPEG pixels may differ by a level
        }
        path = content_path(folder, "cifar", facts).with_suffix(".npz")
    parts = _load_parts(path)
    if parts is None:
        parts = _decode(files["train"], classes), _decode(files["test"], classes)
        _store_parts(path, *parts)
    return _images(*parts, NAMES[classes])


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _store_parts(path: Path | None, train: Part, test: Part) -> None:
    if path is None:
        return
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, train=train[0], train_labels=train[1], test=test[0], test_labels=test[1])
    except OSError as error:
        rank_zero_warn(f"Decoded images cannot be kept in '{path}' ({error}): the next run decodes them again.")


def _load_parts(path: Path | None) -> tuple[Part, Part] | None:
    """What was stored; ``None`` if it is absent or damaged (a zip file has checksums)."""
    if path is None or not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            if stored.zip.testzip() is not None:  # numpy alone would accept a smaller shape in a damaged header
                return None
            return (stored["train"], stored["train_labels"]), (stored["test"], stored["test_labels"])
    except Exception:  # zipfile and numpy answer damage with errors of many kinds
        return None


def _decode(paths: list[Path], classes: int) -> Part:
    parts = [_decode_file(path, classes) for path in paths]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _decode_file(path: Path, classes: int) -> Part:
    """Read one parquet file.

    Raises:
        UserError: It is unreadable or of another schema, or a row has no image of CIFAR's size or no such label.
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    column = LABELS[classes]
    try:
        with pq.ParquetFile(path) as file:
            _check_schema(path, file.schema_arrow, column, classes)
            table = file.read(columns=["img.bytes", column])
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"'{path}' is no readable parquet file: copy it anew.") from error
    if not len(table):
        raise UserError(f"'{path}' has no rows: copy it anew.")
    labels = table[column].cast(pa.int64(), safe=False).fill_null(-1).to_numpy()
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise UserError(
            f"Row {wrong[0] + 1} of '{path}' has {column} {table[column][wrong[0]]}, but CIFAR-{classes} has classes 0 "
            f"to {classes - 1}: copy the file anew."
        )
    pixels = np.empty((len(table), SIDE, SIDE, 3), dtype=np.uint8)
    # One thread decodes 60,000 images in 4 s; two are no faster, as images this small spend their time in Python.
    for row, encoded in enumerate(pc.struct_field(table["img"], "bytes")):
        pixels[row] = _decode_image(encoded.as_py(), path, row + 1)
    return pixels, labels


def _check_schema(path: Path, schema: Any, column: str, classes: int) -> None:
    import pyarrow as pa

    types = dict(zip(schema.names, schema.types, strict=True))
    missing = [name for name in ("img", column) if name not in types]
    if missing:
        raise UserError(
            f"'{path}' has no column '{missing[0]}' but {', '.join(types)}: CIFAR-{classes} needs 'img' and '{column}' "
            f"as in uoft-cs/cifar{classes}."
        )
    image = types["img"]
    sound = pa.types.is_struct(image) and image.get_field_index("bytes") >= 0
    if not sound or not pa.types.is_integer(types[column]):
        raise UserError(
            f"'{path}' has columns of other types ('img': {image}, '{column}': {types[column]}): CIFAR-{classes} needs "
            f"'img' as a struct with 'bytes' and '{column}' as integers, as in uoft-cs/cifar{classes}."
        )


def _decode_image(encoded: bytes | None, path: Path, row: int) -> np.ndarray:
    """RGB pixels, (32, 32, 3) uint8."""
    size = None
    try:
        with Image.open(BytesIO(encoded or b""), formats=("PNG", "JPEG")) as image:
            size = image.size
            if size == (SIDE, SIDE):  # a picture of another size is not decoded at all: it may be a huge one
                return np.asarray(image.convert("RGB"))
    except Exception as error:  # decoders answer damage with errors of many kinds
        raise UserError(f"Row {row} of '{path}' holds no readable PNG or JPEG image: copy the file anew.") from error
    raise UserError(
        f"The image in row {row} of '{path}' has {size[0]}x{size[1]} pixels, but CIFAR's have {SIDE}x{SIDE}: point "
        "--data.data at CIFAR's files."
    )
