"""Checks checkpoints in shards (``save_distributed_checkpoint``), whose index torch pickles, before torch reads them.

torch.distributed.checkpoint unpickles ``.metadata``, and every value that is no tensor, without restriction.
"""

import io
import math
import os
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

from ofmu_pl.support.files import not_written

_PLAIN = {("torch", "Size"), ("torch.serialization", "_get_layout"), ("collections", "OrderedDict")}
_PLAIN |= {("pathlib", "PosixPath"), ("pathlib._local", "PosixPath")}  # the folder that it was written to
_PLAIN |= {("torch", name) for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


class _Index(pickle.Unpickler):
    """Unpickles descriptions of tensors, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Find one of the dataclasses with which torch describes tensors.

        Raises:
            UnpicklingError: Anything else is named.
        """
        described = module.startswith("torch.distributed.checkpoint.") or (module, name) in _PLAIN
        if "." in name or not described:
            raise pickle.UnpicklingError(f"GLOBAL {module}.{name}")
        found = super().find_class(module, name)
        if (module, name) not in _PLAIN and not (isinstance(found, type) and found.__module__ == module):
            raise pickle.UnpicklingError(f"GLOBAL {module}.{name}")
        return found


def names(state: Any, path: str = "") -> list[str]:
    """Dotted paths to all values of nested dictionaries and lists, which a checkpoint keeps to check its index by."""
    if not isinstance(state, dict | list) or state == []:
        return [path]
    found = []
    for key, value in state.items() if isinstance(state, dict) else enumerate(state):
        found += names(value, f"{path}.{key}" if path else str(key))
    return found


def shapes(folder: Path, group: str) -> dict[str, list[int]]:
    """The shapes of the tensors in a group of a folder of shards, by name without the group's prefix."""
    described = read_index(folder).state_dict_metadata
    known = {name.removeprefix(f"{group}."): x for name, x in described.items() if name.startswith(f"{group}.")}
    return {name: list(x.size) for name, x in known.items() if not isinstance(x, BytesStorageMetadata)}


@contextmanager
def shard_errors(folder: Path) -> Iterator[None]:
    """A context in which shards that cannot be written raise an ``OSError``, as one file does.

    torch gathers what every rank raised into a ``CheckpointException``, which is no ``Exception``.

    Raises:
        OSError: A rank could not write its shard; the error names the rank's file, or ``folder`` if it is not known.
    """
    try:
        yield
    except CheckpointException as failed:
        for error, _ in failed.failures.values():
            code = error.errno if isinstance(error, OSError) else not_written(error)
            if code is not None:
                name = getattr(error, "filename", None) or folder
                raise OSError(code, os.strerror(code), str(name)) from error
        raise


def check_shards(folder: Path, index: Metadata, wanted: list[str] | None) -> None:
    """Refuse a folder of shards that is not whole, that is damaged, or that could run code.

    Every record, a zip archive of torch's, is read against its CRC-32 sums, and the index, which has none, against the
    records: each holds a tensor as long as the index says, and those of one name have as many numbers as its tensor.
    Its names are those that were written (``wanted``), if they are known.

    Raises:
        UnpicklingError: A value names something that is not plain.
        BadZipFile: A record does not match its checksum, or the index does not match the records.
        EOFError: A shard is shorter than the index says, or lies elsewhere.
        OSError: A file is missing.
    """
    if wanted is not None and not _named_alike(set(index.state_dict_metadata), wanted):
        raise zipfile.BadZipFile("the index has other names than what was written")
    boxes: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {fqn: [] for fqn in index.state_dict_metadata}
    for key, place in index.storage_data.items():
        shard = folder / place.relative_path
        if shard.resolve().parent != folder.resolve() or shard.stat().st_size < place.offset + place.length:
            raise EOFError(f"{shard} ends before {key.fqn}")
        with shard.open("rb") as file:
            file.seek(place.offset)
            record = io.BytesIO(file.read(place.length))
        described = index.state_dict_metadata[key.fqn]
        with zipfile.ZipFile(record) as archive:
            if archive.testzip() is not None:
                raise zipfile.BadZipFile(f"{key.fqn} in {shard.name} is damaged")
        record.seek(0)
        value = torch.load(record, weights_only=True)
        if isinstance(described, BytesStorageMetadata):
            boxes.pop(key.fqn, None)
        else:
            boxes[key.fqn].append((tuple(key.offset or ()), tuple(value.shape)))
    for fqn, found in boxes.items():
        described = index.state_dict_metadata[fqn]
        if isinstance(described, BytesStorageMetadata):
            raise zipfile.BadZipFile(f"{fqn} has no record")
        expected = {(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in described.chunks}
        filled = sum(math.prod(sizes) for _, sizes in found) == math.prod(described.size)
        if set(found) != expected or not filled:
            raise zipfile.BadZipFile(f"the index does not match the records of {fqn}")


def read_index(folder: Path) -> Metadata:
    """Read the index of a folder of shards.

    Raises:
        UnpicklingError: The index names something that is not plain.
        OSError: The index is missing.
    """
    with (folder / ".metadata").open("rb") as file:
        return cast(Metadata, _Index(file).load())


def _named_alike(found: set[str], wanted: list[str]) -> bool:
    """Whether the names are the wanted ones; torch keeps some lists whole, so a name may stand for all below it."""
    standing = set()
    for name in wanted:
        path = name
        while path and path not in found:
            path = path.rpartition(".")[0]
        standing.add(path)
    return standing == found
