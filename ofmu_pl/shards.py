"""Checkpoints in shards (``save_distributed_checkpoint``): torch pickles their index, so it is read with care first.

torch.distributed.checkpoint unpickles ``.metadata`` and every value that is no tensor without restriction.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import BytesStorageMetadata

_PLAIN = {("torch", "Size"), ("torch.serialization", "_get_layout"), ("collections", "OrderedDict")}
_PLAIN |= {("pathlib", "PosixPath"), ("pathlib._local", "PosixPath")}  # the folder that it was written to
_PLAIN |= {("torch", name) for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


class _Index(pickle.Unpickler):
    """Makes descriptions of tensors and nothing that could do something."""

    def find_class(self, module: str, name: str) -> Any:
        """The dataclasses that torch describes tensors with.

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


def check_shards(folder: Path) -> None:
    """Refuse a folder of shards that is not whole, or that could run code.

    Raises:
        UnpicklingError: The index or a value names something that is not plain.
        EOFError: A shard is shorter than the index says, or lies elsewhere.
        OSError: A file is missing.
    """
    with (folder / ".metadata").open("rb") as file:
        index = _Index(file).load()
    for key, place in index.storage_data.items():
        shard = folder / place.relative_path
        if shard.resolve().parent != folder.resolve() or shard.stat().st_size < place.offset + place.length:
            raise EOFError(f"{shard} ends before {key.fqn}")
        if isinstance(index.state_dict_metadata[key.fqn], BytesStorageMetadata):
            with shard.open("rb") as file:
                file.seek(place.offset)
                torch.load(io.BytesIO(file.read(place.length)), weights_only=True)
