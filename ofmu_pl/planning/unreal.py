"""Runs a computation with networks that have shapes, types and devices, but no numbers: torch's fake tensors.

All that a device would be asked for takes place: FSDP2 cuts, gathers and reduces, optimizers step, state is collected,
and a ledger counts what it would take. Nothing of a network's size is allocated. Whole numbers (token ids, masks,
labels, row numbers) stay real, since the way that a program takes depends on them.
"""

import copy
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

# Private by name; torch's pages on fake tensors document the class under this one, and no public module has it.
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode  # private by name, documented under "Extending PyTorch"
from torch.utils._pytree import tree_leaves

from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.networks.predictions import Predictions
from ofmu_pl.planning.ledger import Ledger

aten = torch.ops.aten
ENOUGH = 2
"""How often a network's losses are computed in the same way: twice, since layers that FSDP2 shards and gathers may
fail the second time."""


class Unreal(TorchDispatchMode):
    """A mode in which floating-point tensors are fake as soon as they are made, or computed from one that is.

    Numbers that the computation reads from them are 1, or 0.1 after an inner product of two different vectors, so that
    vectors have length 1 and point apart.

    Args:
        ledger: Told of every fake tensor.
        shared: Whether several processes share the work: what torch fills between them it makes by ``torch.empty``.
    """

    def __init__(self, ledger: Ledger, *, shared: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ledger, self.shared = ledger, shared
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._apart = False
        self._product: Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation on fake or on real tensors."""
        kwargs = kwargs or {}
        if any(issubclass(cls, DTensor) for cls in types):
            return NotImplemented  # which takes it apart into operations on local tensors
        if active_fake_mode() is not None:  # DTensor's own, which looks for the shape of a result
            return func(*args, **kwargs)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not any(isinstance(x, FakeTensor) or x.is_meta for x in tensors):
            if tensors or not _floats(out := self._faked(func, types, args, kwargs)):
                return func(*args, **kwargs)
            return out
        if func is aten._local_scalar_dense.default:
            return self._number(args[0])
        if func in IN_PLACE:
            return args[0]
        if func in _OF_LISTS:
            return None
        if func in _BY_MASKS:
            args = (args[0], [*chain.from_iterable(map(_places, args[1]))], *args[2:])
        if func is aten.dot.default:
            self._apart = args[0].untyped_storage() is not args[1].untyped_storage()
            if self._product is None:
                self._product = self._faked(func, types, args, kwargs)
            return self._product
        return self._faked(func, types, args, kwargs)

    def _number(self, x: Tensor) -> float | int | bool:
        """The number that stands for a tensor's only one."""
        value = 0.1 if self._apart else 1.0
        self._apart = False
        return value if x.dtype.is_floating_point else x.dtype == torch.bool or 1

    def _faked(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        # Not by entering the mode and calling again, which looks for GPUs each time.
        out = self.fake.__torch_dispatch__(func, types, args, kwargs)
        self.fake.fake_tensor_converter.tensor_memo.clear()  # it refers to results, and Module.to refuses referred ones
        resized = self.shared and func is aten.empty.memory_format
        for x in out if isinstance(out, list | tuple) else (out,):
            if isinstance(x, FakeTensor) and not x.is_meta:
                self.ledger.note(x, resized=resized)
        return out


IN_PLACE = {aten.add_.Tensor, aten.copy_.default, aten.mul_.Tensor}
"""Operations whose results are there already: with those on lists most of the algebra on vectors (``core.vectors``)."""

_OF_LISTS = {aten._foreach_add_.List, aten._foreach_copy_.default, aten._foreach_mul_.Scalar}

_BY_MASKS = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
"""Operations whose results are as large as masks have places that are true."""


def _places(index: Tensor | None) -> tuple[Tensor | None, ...]:
    """The places of a mask, all of them where it has no numbers; another index as it is."""
    if index is None or index.dtype != torch.bool:
        return (index,)
    mask = torch.ones(index.shape, dtype=torch.bool) if isinstance(index, FakeTensor) else index
    return mask.nonzero(as_tuple=True)


class _Functions(TorchFunctionMode):
    """A mode in which fake tensors become arrays of ones, and the ledger learns when graphs are differentiated."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make an array where numpy asks for one; what differentiation makes belongs to graphs."""
        if func in (Tensor.numpy, Tensor.__array__) and isinstance(args[0], FakeTensor):
            return np.ones(tuple(args[0].shape), np.dtype(str(args[0].dtype).removeprefix("torch.")))
        if func not in (Tensor.backward, torch.autograd.grad):
            return func(*args, **kwargs or {})
        self.ledger.count_as("activations")
        out = func(*args, **kwargs or {})
        self.ledger.count_as("vectors")
        return out


def _floats(x: Any) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in tree_leaves(x))


def unreal(skeleton: nn.Module) -> nn.Module:
    """Give a network of the meta device, in place, fake tensors of the CPU; tied ones stay tied."""
    known: dict[int, Tensor] = {}
    for module in skeleton.modules():
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, x in own:
            if id(x) not in known:
                blank = torch.empty_like(x, device="cpu")
                known[id(x)] = nn.Parameter(blank, x.requires_grad) if isinstance(x, nn.Parameter) else blank
            setattr(module, name, known[id(x)])
    return skeleton


class Weightless:
    """Makes networks of fake tensors in a recipe's place; losses that only repeat are not computed again.

    Args:
        recipe: The real recipe.
        ledger: Told what the memory is for.
        exact: Whether graphs of graphs are taken, so that every loss counts.

    Attributes:
        stand_in: The recipe with networks of this kind.
    """

    def __init__(self, recipe: Network, ledger: Ledger, *, exact: bool) -> None:
        self.recipe, self.ledger, self.exact = recipe, ledger, exact
        self.real, self._built = True, False
        self._done: Counter[tuple[int, bool]] = Counter()
        self._looks: Counter[int] = Counter()
        self.stand_in = copy.copy(recipe)
        # A classifier knows the number of its classes from what it has made, which is asked of the real recipe.
        vars(self.stand_in).update(build=self.build, sample_losses=self.sample_losses, uniform_loss=recipe.uniform_loss)
        vars(self.stand_in).update(build_in_shards=partial(Network.build_in_shards, self.stand_in))
        vars(self.stand_in).update(never_trained=self.never_trained)
        if recipe.modality == "text":
            vars(self.stand_in).update(predict=self.predict)

    def never_trained(self) -> Network:
        """The stand-in of a recipe whose networks nobody trains."""
        twin = copy.copy(self.stand_in)
        vars(twin).update(build=partial(self.build, recipe=self.recipe.never_trained()))
        vars(twin).update(build_in_shards=partial(Network.build_in_shards, twin))
        return twin

    def build(self, datamodule: Any, *, exact: bool, recipe: Network | None = None) -> nn.Module:
        """Make the network's skeleton of fake tensors: the network to train, then further copies."""
        ledger, before = self.ledger, self.ledger.kind
        ledger.count_as("copies" if self._built else "parameters")
        network = unreal((recipe or self.recipe).skeleton(datamodule, exact=exact))
        ledger.count_as(before)
        self._built = True
        network.register_forward_pre_hook(lambda *_: ledger.count_as("activations"))
        network.register_forward_hook(lambda *_: None if torch.is_grad_enabled() else ledger.count_as("vectors"))
        return network

    def compute(self, real: bool) -> None:
        """Compute losses from here on, or stand something in for them."""
        self.real = real

    def predict(self, module: nn.Module, batch: Batch) -> tuple[Predictions, Tensor]:
        """What is said, and labels; without a graph blank logits, once as many rows were read ``ENOUGH`` times."""
        rows = len(batch["labels"])
        self._looks[rows] += not torch.is_grad_enabled()
        if self.exact or torch.is_grad_enabled() or self._looks[rows] <= ENOUGH:
            return self.recipe.predict(module, batch)
        vocabulary = round(math.exp(self.recipe.uniform_loss(module)))

        def blank(input_ids: Tensor, logits_to_keep: int, **_: object) -> SimpleNamespace:
            return SimpleNamespace(logits=torch.zeros(1).expand(len(input_ids), logits_to_keep, vocabulary))

        return self.recipe.predict(blank, batch)  # type: ignore[arg-type]

    def sample_losses(self, module: nn.Module, batch: Batch) -> Tensor:
        """(b,) losses, or something of that shape without a graph."""
        kind = id(module), torch.is_grad_enabled()
        self._done[kind] += 1
        if self.real and (self.exact or self._done[kind] <= ENOUGH):
            return self.recipe.sample_losses(module, batch)
        if self.real:
            self.ledger.repeat()
        return torch.zeros(len(next(iter(batch.values()))), requires_grad=True)


@contextmanager
def pretended(ledger: Ledger, size: int) -> Iterator[None]:
    """A context without numbers in which this process is the first of so many that are not there.

    torch's backend ``fake`` communicates nothing: what the others would send is this process's own.

    Args:
        ledger: Told of every fake tensor.
        size: Number of processes; even one is a group, or DDP would make a real one of it.

    Raises:
        ValueError: The process is one of a group already.
    """
    dist.init_process_group("fake", rank=0, world_size=size)
    try:
        with _Functions(ledger), Unreal(ledger, shared=size > 1):
            yield
    finally:
        dist.destroy_process_group()
