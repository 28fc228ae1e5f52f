"""CIFAR as parquet files in the hub's schema: checked row by row, decoded once and kept."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from lightning.pytorch.utilities import rank_zero_warn
from PIL import Image, features

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import file_hash, replacing
from ofmu_pl.support.kept import cache_folder, content_path

SIDE = 32
"""Height and width of CIFAR's images."""
FOLDERS = (".", "plain_text", "data", "cifar100")
"""Where parquet files may lie: the folder, or the hub's names of configurations."""
LABELS: dict[int, str] = {10: "label", 100: "fine_label"}
"""The column of labels, by number of classes."""
Part = tuple[np.ndarray, np.ndarray]
"""Pixels, (n, 32, 32, 3) uint8, and labels, (n,) int64, of the training or the test images."""


def find_parquet(folder: Path) -> dict[str, list[Path]] | None:
    """The files of ``train`` and ``test``, each in order; ``None`` if the folder has none.

    Raises:
        UserError: One of the two parts is missing or incomplete.
    """
    for inner in (folder / name for name in FOLDERS):
        files = {split: sorted(inner.glob(f"{split}*.parquet")) for split in ("train", "test")}
        if any(files.values()):
            for split, paths in files.items():
                _check_complete(inner, split, paths)
            return files
    return None


def _check_complete(folder: Path, split: str, paths: list[Path]) -> None:
    """Refuse all but one file or one full set of shards: other files would leave out images or hold them twice."""
    if not paths:
        raise UserError(f"'{folder}' has no {split}*.parquet: put it beside the other parquet files.")
    shards = [re.search(r"-(\d{5})-of-(\d{5})", path.name) for path in paths]
    found = [(int(shard[1]), int(shard[2])) for shard in shards if shard]
    if (found or len(paths) > 1) and found != [(i, len(paths)) for i in range(len(paths))]:
        raise UserError(
            f"{', '.join(path.name for path in paths)} in '{folder}' are not one file or one full set of shards: keep "
            f"{split}.parquet alone, or {split}-00000-of-NNNNN.parquet and all that follow."
        )


def read_parquet(files: dict[str, list[Path]], classes: int) -> tuple[Part, Part]:
    """Decode the training and the test files, or take from the cache what decoding them gave before.

    Args:
        files: What ``find_parquet`` gave.
        classes: Number of classes, 10 or 100.

    Raises:
        UserError: A file is unreadable or of another schema, or a row has no image of CIFAR's size or no such label.
    """
    path, folder = None, cache_folder()
    if folder is not None:
        facts = {
            "files": {split: [file_hash(p) for p in paths] for split, paths in files.items()},
            "classes": classes,
            "decoder": [PIL.__version__, features.version("libjpeg_turbo")],  # JPEG pixels may differ by a level
        }
        path = content_path(folder, "cifar", facts).with_suffix(".npz")
    parts = _load_parts(path)
    if parts is None:
        parts = _decode(files["train"], classes), _decode(files["test"], classes)
        _store_parts(path, *parts)
    return parts


def _store_parts(path: Path | None, train: Part, test: Part) -> None:
    if path is None:
        return
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, train=train[0], train_labels=train[1], test=test[0], test_labels=test[1])
    except OSError as error:
        rank_zero_warn(f"Decoded images cannot be kept in '{path}' ({error}): the next run decodes them again.")


def _load_parts(path: Path | None) -> tuple[Part, Part] | None:
    """The parts stored in the cache; ``None`` if they are absent or damaged (a zip file has checksums)."""
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
    """Decode one parquet file.

    Raises:
        UserError: The file is unreadable or of another schema, or a row has no image of CIFAR's size or no such label.
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
    """Decode a row's image to RGB pixels, (32, 32, 3) uint8."""
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
