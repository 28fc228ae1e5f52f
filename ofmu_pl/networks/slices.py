"""Safetensors files of which every rank reads and writes its own rows alone, so that none holds a whole model.

Parameters are cut in their first dimension (FSDP2), and a file's tensors lie row by row: a rank's rows are one piece.
"""

import json
import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from ofmu_pl.core.vectors import local
from ofmu_pl.support.files import write_json
from ofmu_pl.support.processes import gathered, is_first

WEIGHTS = "model.safetensors"  # file of a model's weights, where one file holds them
INDEX = f"{WEIGHTS}.index.json"  # file that says which of several files holds which tensor
LARGEST_FILE = "50GB"  # from here on weights are several files, as in transformers
_TYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
"""Names of types in the header of a file (huggingface.co/docs/safetensors, "Format")."""


def shapes_in(files: list[Path]) -> dict[str, tuple[Path, list[int]]]:
    """The file and the shape of every tensor in some files, whose numbers are not read."""
    found = {}
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118, it is no dictionary
                found[name] = path, file.get_slice(name).get_shape()
    return found


def exchange(model: nn.Module, make: Callable[[str, nn.Parameter], nn.Parameter]) -> None:
    """Replace each parameter of a model by one that is made from its name and the old one; tied ones stay tied."""
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
            key, mine = named(name), rows_of(old)
            new = torch.empty_like(old, device=cast(DTensor, old).device_mesh.device_type)
            if mine.stop > mine.start:
                local(new).copy_(opened[files[key]].get_slice(key)[mine])
            return nn.Parameter(new, requires_grad=old.requires_grad)

        with torch.no_grad():
            exchange(model, read)


def rows_of(x: Tensor) -> slice:
    """The rows of a tensor in shards that this rank holds."""
    assert isinstance(x, DTensor)
    rows = distribute_tensor(torch.arange(len(x)), x.device_mesh, x.placements, src_data_rank=None).to_local()
    first = int(rows[0]) if len(rows) else 0
    return slice(first, first + len(rows))


def write_rows(folder: Path, tensors: Mapping[str, Tensor], value: Callable[[str], Tensor], dtype: torch.dtype) -> None:
    """Write weights into a folder that all ranks see, byte for byte as transformers writes whole ones.

    Args:
        folder: An existing folder.
        tensors: Tensors in shards, by their names in the files.
        value: Gives what is written of a name: this tensor or, on all ranks, a whole one of its shape.
        dtype: Type in which they are written.

    Raises:
        OSError: A rank cannot write; it is raised on all.
    """
    first, failed = is_first(), None
    blank = {n: torch.empty(x.shape, dtype=dtype, device="meta") for n, x in tensors.items()}
    split = split_torch_state_dict_into_shards(
        blank, filename_pattern="model{suffix}.safetensors", max_shard_size=LARGEST_FILE
    )
    for file, names in split.filename_to_tensors.items():
        header, begins = _header({name: blank[name] for name in names})
        if first:
            failed = _put(folder / file, 0, header) or failed
        for name, begin in begins.items():
            mine, x = rows_of(tensors[name]), value(name)  # takes all ranks, also after a failure
            rows = (local(x) if isinstance(x, DTensor) else x[mine]).detach().to("cpu", blank[name].dtype).contiguous()
            place = len(header) + begin + mine.start * (blank[name].nbytes // len(x))
            failed = _put(folder / file, place, rows.reshape(-1).view(torch.uint8).numpy().data) or failed
    for error in gathered(failed):  # here all ranks wait for each other
        if error is not None:
            raise error
    if first and split.is_sharded:
        facts = {"total_parameters": sum(x.numel() for x in blank.values()), **split.metadata}
        write_json(folder / INDEX, {"metadata": facts, "weight_map": split.tensor_to_filename})


def _header(tensors: Mapping[str, Tensor]) -> tuple[bytes, dict[str, int]]:
    """The header of a file, and where each tensor begins after it: larger types first, then by name."""
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begins, end = {}, 0
    for name, x in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        begins[name] = end
        end += x.nbytes
        described[name] = {"dtype": _TYPES[x.dtype], "shape": list(x.shape), "data_offsets": [begins[name], end]}
    header = json.dumps(described, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header, begins


def _put(path: Path, begin: int, content: memoryview | bytes) -> OSError | None:
    """Write bytes at their place in a file that others write elsewhere in; returns what went wrong."""
    try:
        path.touch()
        with path.open("r+b") as file:
            file.seek(begin)
            file.write(content)
    except OSError as error:
        return error
    return None
