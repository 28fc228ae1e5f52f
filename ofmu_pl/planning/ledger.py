"""Counts the memory that a computation on the meta device would take: what is alive, of which kind, and the peak.

Tensors of the meta device have shapes and types but no numbers, so the computation costs no memory and hardly any time,
while autograd keeps and frees exactly the tensors that it keeps and frees for real. Every storage is counted from its
creation to its end, as an allocator would; workspaces inside kernels are not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode  # private by name, documented under "Extending PyTorch"

KINDS = ("parameters", "vectors", "optimizer", "activations", "gathered", "copies")


class MadeUp:
    """Numbers in the place of those that a computation reads from tensors that have none.

    They are 1, or 0.1 after an inner product of two different vectors, so that vectors have length 1 and point apart.
    """

    def __init__(self) -> None:
        self._apart = False

    def note(self, func: Any, args: Any) -> None:
        """See whether an operation is an inner product, and of what."""
        if func is torch.ops.aten.dot.default:
            self._apart = args[0].untyped_storage() is not args[1].untyped_storage()

    def number(self, x: Tensor) -> float | int | bool:
        """The number that stands for a tensor's only one."""
        value = 0.1 if self._apart else 1.0
        self._apart = False
        return value if x.dtype.is_floating_point else x.dtype == torch.bool or 1


class Ledger(TorchDispatchMode):
    """Counts all storages on the meta device while it is entered.

    Numbers that the computation reads (norms, losses) are made up (``MadeUp``). Tensors of the CPU (batches) may be
    mixed in.

    Args:
        ranks: Processes that share ``sharded`` kinds.
        sharded: Kinds of which a process holds its share only.

    Attributes:
        kind: Kind of what is created now.
        live: Bytes alive of each kind, of one process.
        peak: ``live`` when its sum was largest.
        most: The largest value of each kind by itself.
    """

    def __init__(self, ranks: int = 1, sharded: Iterable[str] = ()) -> None:
        super().__init__()
        self.kind = "vectors"
        self.live, self.peak, self.most = ({kind: 0.0 for kind in KINDS} for _ in range(3))
        self._share = {kind: ranks if kind in set(sharded) else 1 for kind in KINDS}
        self._known: dict[int, weakref.ref[Any]] = {}
        self._made_up = MadeUp()

    @contextmanager
    def counting(self, kind: str) -> Iterator[None]:
        """Storages made meanwhile are of this kind."""
        before, self.kind = self.kind, kind
        try:
            yield
        finally:
            self.kind = before

    def add(self, tensors: Iterable[Tensor], kind: str) -> None:
        """Count tensors that exist already."""
        with self.counting(kind):
            for x in tensors:
                self._note(x)

    def change(self, kind: str, size: float) -> None:
        """Count bytes that no tensor here stands for (negative: they are gone)."""
        self.live[kind] += size
        self._look()

    def repeat(self, kind: str) -> None:
        """Count what a kind took at most so far as if it were alive for a moment."""
        size = self.most[kind] - self.live[kind]
        self.change(kind, size)
        self.change(kind, -size)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and count what it makes."""
        kwargs = kwargs or {}
        if any(map(_is_meta, args)) or any(map(_is_meta, kwargs.values())):
            if func is torch.ops.aten._local_scalar_dense.default:
                return self._made_up.number(args[0])
            if func in IN_PLACE:
                return args[0]
            self._made_up.note(func, args)
            if func is torch.ops.aten.dot.default:
                return args[0].new_empty(())
            args, kwargs = _to_meta(args), {k: _to_meta(v) for k, v in kwargs.items()}
        out = func(*args, **kwargs)
        for x in out if isinstance(out, list | tuple) else (out,):
            if isinstance(x, Tensor):
                self._note(x)
        return out

    def _note(self, x: Tensor) -> None:
        if x.device.type != "meta":
            return
        storage, kind = x.untyped_storage(), self.kind
        key = id(storage)  # torch keeps one Python object a storage, as long as anything holds the storage
        if key in self._known:
            return
        size = storage.nbytes() / self._share[kind]

        def end(_: Any) -> None:
            self.live[kind] -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, end)
        self.live[kind] += size
        self._look()

    def _look(self) -> None:
        kind, live = self.kind, self.live
        self.most[kind] = max(self.most[kind], live[kind])
        if sum(live.values()) > sum(self.peak.values()):
            self.peak = dict(live)


IN_PLACE = {torch.ops.aten.add_.Tensor, torch.ops.aten.copy_.default, torch.ops.aten.mul_.Tensor}
"""Most of the algebra on vectors. They allocate nothing, and torch's own checks of them take a third of the time."""


class Kernels(TorchFunctionMode):
    """What devices do and the meta device does not: fused attention, and autocast.

    Args:
        autocast: Whether matrix products are taken in bfloat16 (``bf16-mixed``), each of its operands cast by itself as
            Lightning's plugin has it.
    """

    def __init__(self, autocast: bool) -> None:
        super().__init__()
        self.autocast = autocast

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace attention's composite form, which keeps the (S, S) scores; cast around products."""
        kwargs = kwargs or {}
        if self.autocast and func in _LOWER:
            args = [_cast(x, torch.float32, torch.bfloat16) for x in args]
            kwargs = {k: _cast(x, torch.float32, torch.bfloat16) for k, x in kwargs.items()}
        elif self.autocast and func in _HIGHER:
            args = [_cast(x, torch.bfloat16, torch.float32) for x in args]
        if func is F.scaled_dot_product_attention:
            return _fused_attention(*args, **kwargs)
        return func(*args, **kwargs)


_LOWER = {
    F.linear,
    F.conv2d,
    F.scaled_dot_product_attention,
    torch.matmul,
    torch.bmm,
    Tensor.matmul,
    Tensor.__matmul__,
    Tensor.bmm,
}
_HIGHER = {F.softmax, F.log_softmax, F.cross_entropy, F.layer_norm, F.group_norm, F.softplus}


def _fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Tensor:
    """Attention that keeps its inputs, its output and one number a row, as all fused kernels do."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = attn_mask.to("meta").to(query.dtype)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out: Tensor = kernel(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return out


def _cast(x: Any, source: torch.dtype, target: torch.dtype) -> Any:
    return x.to(target) if isinstance(x, Tensor) and x.dtype == source else x


def _is_meta(x: Any) -> bool:
    if isinstance(x, Tensor):
        return x.device.type == "meta"
    return isinstance(x, list | tuple) and any(map(_is_meta, x))


def _to_meta(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x if x.device.type == "meta" else x.to("meta")
    if isinstance(x, list | tuple):
        return type(x)(map(_to_meta, x))
    return x
