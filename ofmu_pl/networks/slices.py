"""Safetensors files of which every rank reads and writes its own rows alone, so that none holds a whole model.

Parameters are cut in their first dimension (FSDP2), and a file's tensors lie row by row: a rank's rows are one piece.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from ofmu_pl.support.files import write_json

WEIGHTS = "model.safetensors"
"""File of a model's weights, where one file holds them."""
INDEX = f"{WEIGHTS}.index.json"
"""File that says which of several files holds which tensor."""
LARGEST_FILE = "50GB"
"""From here on weights are several files, as in transformers."""
_TYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_TYPES |= {torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL"}
"""Names of types in the header of a file (huggingface.co/docs/safetensors, "Format")."""


def shapes_in(files: list[Path]) -> dict[str, tuple[Path, list[int]]]:
    """The file and the shape of every tensor in some files, whose numbers are not read."""
    found = {}
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118, it is no dictionary
                found[name] = path, file.get_slice(name).get_shape()
    return found


def emptied(p: nn.Parameter) -> nn.Parameter:
    """The parameter on the meta device."""
    return nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), requires_grad=p.requires_grad)


def exchange(model: nn.Module, make: Callable[[str, nn.Parameter], nn.Parameter]) -> None:
    """Put other parameters in the place of a model's, made from the name and the old one; tied ones stay tied."""
    known: dict[nn.Parameter, nn.Parameter] = {}
    for prefix, module in model.named_modules():
        for name, old in list(module.named_parameters(recurse=False)):
            if old not in known:
                known[old] = make(f"{prefix}.{name}" if prefix else name, old)
            setattr(module, name, known[old])


def read_rows(model: nn.Module, files: Mapping[str, Path], named: Callable[[str], str]) -> None:
    """Read this rank's rows of every parameter that lies on the meta device, converted to its type.

    Args:
        model: A network that FSDP2 has cut.
        files: The file of each tensor.
        named: Gives a parameter's name in the files.
    """
    with ExitStack() as stack:
        opened = {path: stack.enter_context(safe_open(path, "pt")) for path in sorted(set(files.values()))}

        def read(name: str, old: nn.Parameter) -> nn.Parameter:
            if not old.is_meta:
                return old
            assert isinstance(old, DTensor)
            new = torch.empty_like(old, device=old.device_mesh.device_type)
            mine = rows_of(old)
            if mine.stop > mine.start:
                key = named(name)
                new.to_local().copy_(opened[files[key]].get_slice(key)[mine])
            return nn.Parameter(new, requires_grad=old.requires_grad)

        with torch.no_grad():
            exchange(model, read)


def rows_of(x: DTensor) -> slice:
    """The rows of a tensor that this rank holds."""
    rows = distribute_tensor(torch.arange(len(x)), x.device_mesh, x.placements, src_data_rank=None).to_local()
    first = int(rows[0]) if len(rows) else 0
    return slice(first, first + len(rows))


def write_rows(folder: Path, tensors: Mapping[str, Tensor], value: Callable[[str], Tensor]) -> None:
    """Write a model's weights into a folder that all ranks see, byte for byte as one rank would write them.

    The first rank makes files of the final size; then every rank writes its rows. All ranks fail where one does.

    Args:
        folder: An existing folder.
        tensors: Tensors by their names in the files: cut ones, and whole ones, which the first rank writes.
        value: Gives what is written of a name: this tensor or, on all ranks, a whole one of its shape.

    Raises:
        OSError: A rank cannot write.
    """
    blank = {name: torch.empty(x.shape, dtype=x.dtype, device="meta") for name, x in tensors.items()}
    split = split_torch_state_dict_into_shards(
        blank, filename_pattern="model{suffix}.safetensors", max_shard_size=LARGEST_FILE
    )
    layouts = {file: _layout({k: blank[k] for k in names}) for file, names in split.filename_to_tensors.items()}
    first, failed = dist.get_rank() == 0, None
    try:
        if first:
            for file, (header, _, size) in layouts.items():
                with (folder / file).open("wb") as new:
                    new.write(header)
                    new.truncate(len(header) + size)
            if split.is_sharded:
                facts = {"total_parameters": sum(x.numel() for x in blank.values()), **split.metadata}
                write_json(folder / INDEX, {"metadata": facts, "weight_map": split.tensor_to_filename})
    except OSError as error:
        failed = error
    _fail_together(failed)
    for file, (header, begins, _) in layouts.items():
        with (folder / file).open("r+b") as opened:
            for name, begin in begins.items():
                x = value(name)  # takes all ranks, also after a failure
                try:
                    _write(opened, len(header) + begin, tensors[name], x, first)
                except OSError as error:
                    failed = failed or error
    _fail_together(failed)


def _layout(tensors: Mapping[str, Tensor]) -> tuple[bytes, dict[str, int], int]:
    """The header of a file, where each tensor begins after it, and the bytes of all: larger types first, then names."""
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begins, size = {}, 0
    for name, x in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        begins[name] = size
        size += x.nbytes
        described[name] = {"dtype": _TYPES[x.dtype], "shape": list(x.shape), "data_offsets": [begins[name], size]}
    header = json.dumps(described, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header, begins, size


def _write(file: BinaryIO, begin: int, tensor: Tensor, x: Tensor, first: bool) -> None:
    """Write this rank's rows of a tensor, or on the first rank a whole one."""
    if isinstance(tensor, DTensor):
        mine = rows_of(tensor)
        x = x.to_local() if isinstance(x, DTensor) else x[mine]
        begin += mine.start * (tensor.nbytes // max(len(tensor), 1))
    elif not first:
        return
    file.seek(begin)
    file.write(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _fail_together(error: OSError | None) -> None:
    """Wait for all ranks, and raise on each the first one's error, if any has one."""
    errors: list[OSError | None] = [None] * dist.get_world_size()
    dist.all_gather_object(errors, error)
    for found in errors:
        if found is not None:
            raise found
