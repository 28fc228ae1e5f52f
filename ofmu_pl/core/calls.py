"""Which operators a network calls, seen while it runs: the classes of its modules do not show a ``F.layer_norm``."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode  # where torch documents it (torch.utils: extending dispatch)


class Calls(TorchDispatchMode):
    """Every operator that reaches a kernel while the mode is on, with the module that called it.

    Attributes:
        differentiated: Operators on tensors that depend on trainable parameters, by name (``native_layer_norm``): the
            innermost module that called it first, as ``Class at 'name'``.
        random: Operators that draw dropout's masks, likewise.
        of_batches: Normalisations by statistics of the batch itself, likewise; the value also says whether they update
            running statistics.
        narrowed: Whether something that depends on trainable parameters was cast to a shorter number format.
    """

    def __init__(self) -> None:
        super().__init__()
        self.differentiated: dict[str, str] = {}
        self.random: dict[str, str] = {}
        self.of_batches: dict[str, tuple[str, bool]] = {}
        self.narrowed = False
        self._inside = ["the loss"]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the call and run it."""
        out = func(*args, **(kwargs or {}))
        name, where = func.name().split("::")[-1].split(".")[0], self._inside[-1]
        if name.startswith("bernoulli") or name == "native_dropout":
            self.random.setdefault(name, where)
        # Below autograd tensors still say whether a gradient will pass through them.
        tensors = [x for x in args if isinstance(x, Tensor)]
        if any(x.requires_grad for x in tensors):
            self.differentiated.setdefault(name, where)
            self.narrowed |= name == "_to_copy" and _bits(out) < _bits(tensors[0])
            if "batch_norm" in name and "backward" not in name and next((x for x in args if x is True), None):
                self.of_batches.setdefault(name, (where, len(args) > 3 and isinstance(args[3], Tensor)))
        return out

    def enter(self, name: str, module: nn.Module, _: object) -> None:
        """Enter a module: it makes the calls that follow."""
        self._inside.append(f"{type(module).__name__} at '{name or 'the root'}'")

    def leave(self, *_: object) -> None:
        """Leave the module entered last."""
        self._inside.pop()


def calls(network: nn.Module, run: Callable[[], object]) -> Calls:
    """Collect what ``network`` calls while ``run`` runs it; one pass over a sample or two is enough."""
    seen = Calls()
    with ExitStack() as hooks:
        for name, module in network.named_modules():
            hooks.enter_context(module.register_forward_pre_hook(partial(seen.enter, name)))
            hooks.enter_context(module.register_forward_hook(seen.leave, always_call=True))
        with seen, torch.enable_grad():
            run()
    return seen


def _bits(x: Tensor) -> int:
    return torch.finfo(x.dtype).bits if x.is_floating_point() else 64
