"""Files of weights: read without running anything that they hold, and all of the network's tensors or none.

A tensor that is absent would stay random.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ofmu_pl.support.errors import UserError

KEYS = ("state_dict", "model_state_dict")  # where checkpoints keep the state dict, beside optimizers and epochs
WRAPPERS = ("module.", "_orig_mod.", "model.", "net.", "network.")
"""What ``DataParallel``, ``torch.compile`` and Lightning modules put in front of every name."""
COUNTER = ".num_batches_tracked"
"""What BatchNorm counts since torch 0.4.1; torch takes its absence from older files for 0, and eval mode has no use."""
NAMED = 3  # tensors of each kind; the others are counted
_CODE = re.compile(r"GLOBAL ([\w.]+)")
"""How torch says that a pickle names something other than tensors and plain values."""


def read_state(path: Path, wanted: Collection[str]) -> dict[str, Tensor]:
    """Read a state dict from safetensors or from what ``torch.save`` wrote.

    A checkpoint may hold it as ``state_dict`` or ``model_state_dict``, and all its names may begin with some of
    ``WRAPPERS``.
    """
    content = _read(path)
    for key in KEYS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content or not all(isinstance(x, Tensor) for x in content.values()):
        raise UserError(
            f"'{path}' holds no state dict: save one by torch.save(model.state_dict(), FILE), alone or in a dictionary "
            f"as {' or '.join(KEYS)}."
        )
    state = {str(name): x for name, x in content.items()}
    while wrapper := next((w for w in WRAPPERS if _wraps(w, state, wanted)), None):
        state = {name.removeprefix(wrapper): x for name, x in state.items()}
    return state


def _wraps(wrapper: str, state: Collection[str], wanted: Collection[str]) -> bool:
    return all(name.startswith(wrapper) for name in state) and not any(name.startswith(wrapper) for name in wanted)


def fill(module: nn.Module, state: Mapping[str, Tensor], source: str | Path, described: str) -> None:
    """Load a state dict, or name what is missing in it, unexpected or of another shape."""
    wanted = module.state_dict()
    counters = {name: x for name, x in wanted.items() if name.endswith(COUNTER) and name not in state}
    state = {**state, **counters}
    shapes = [(name, state[name].shape, wanted[name].shape) for name in state.keys() & wanted.keys()]
    misshapen = [(name, found, shape) for name, found, shape in shapes if found != shape]
    check_tensors(source, wanted.keys() - state.keys(), state.keys() - wanted.keys(), misshapen, described)
    module.load_state_dict(state)


def _read(path: Path) -> object:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, LookupError, SafetensorError, UnpicklingError) as error:
        code = _CODE.search(str(error))
        if isinstance(error, UnpicklingError) and code:
            raise UserError(
                f"'{path}' holds pickled code ({code[1]}) beside tensors, and none is run: "
                "save the weights alone, by torch.save(model.state_dict(), FILE)."
            ) from error
        raise UserError(
            f"'{path}' is no readable file of weights ({str(error).splitlines()[0][:100]}): give safetensors, or what "
            "torch.save wrote of a state dict."
        ) from error


def check_tensors(
    source: str | Path,
    missing: Collection[str],
    unexpected: Collection[str],
    misshapen: Iterable[tuple[str, Sequence[int], Sequence[int]]],
    described: str = "its config.json",
) -> None:
    """Refuse weights that do not fit the network described beside them."""
    shapes = [f"{name} ({list(found)}, not {list(wanted)})" for name, found, wanted in misshapen]
    faults = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
    found = "; ".join(f"{fault}: {_listed(names)}" for fault, names in faults if names)
    if found:
        raise UserError(
            f"The weights in '{source}' are not those of the network that {described} describes ({found}): get or "
            f"export the model anew, or correct {described}."
        )


def _listed(names: Collection[str]) -> str:
    first = ", ".join(sorted(names)[:NAMED])
    return first + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
