"""Linear algebra on parameter-shaped vectors: a vector is a list with one tensor per parameter.

Scalars come back as Python floats. Products are accumulated in float32 (float64 for float64 tensors), whatever
the storage type, because norms of bfloat16 gradients lose digits otherwise. Sums use torch's documented ``_foreach``
operations: a few kernels instead of one per parameter.
"""

import math
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

Vector = list[Tensor]
Combination = Sequence[tuple[float, Sequence[Tensor]]]
"""A linear combination ``sum_i c_i x_i`` that is never stored: pairs (c_i, x_i)."""


def is_sharded(x: Sequence[Tensor]) -> bool:
    """Whether ranks hold FSDP2's shards of the vector, not all of it."""
    return isinstance(x[0], DTensor)


def local(x: Tensor) -> Tensor:
    """This rank's part of a tensor, sharing its memory."""
    return x.to_local() if isinstance(x, DTensor) else x


def _locals(x: Sequence[Tensor]) -> list[Tensor]:
    """This rank's parts, detached so that leaves may be written to and shards skip the dispatch of every operation."""
    return [local(a.detach()) for a in x]


def _flat(x: Tensor) -> Tensor:
    x = local(x)
    return x.reshape(-1) if x.dtype == torch.float64 else x.reshape(-1).float()


def dot(x: Sequence[Tensor], y: Sequence[Tensor]) -> float:
    """Inner product ``<x, y>``; that of shards is summed over ranks."""
    total = torch.stack([torch.dot(_flat(a), _flat(b)) for a, b in zip(x, y, strict=True)]).sum()
    if is_sharded(x):
        dist.all_reduce(total, group=x[0].device_mesh.get_group())  # type: ignore[attr-defined]
    return total.item()


def norm(x: Sequence[Tensor]) -> float:
    """Euclidean norm ``|x|``."""
    return math.sqrt(dot(x, x))


def combination_norm(terms: Combination) -> float:
    """``|sum_i c_i x_i|`` from the Gram matrix of the ``x_i``, without forming the sum.

    Cancellation limits it to about 1e-4 of the largest term in float32: enough for the step rules that use it.
    """
    square = 0.0
    for i, (a, x) in enumerate(terms):
        square += a * a * dot(x, x)
        square += sum(2 * a * b * dot(x, y) for b, y in terms[i + 1 :])
    return math.sqrt(max(square, 0.0))


def add_(out: Sequence[Tensor], terms: Combination) -> None:
    """In place ``out += sum_i c_i x_i``."""
    for c, x in terms:
        torch._foreach_add_(_locals(out), _locals(x), alpha=c)


def scale_(x: Sequence[Tensor], c: float) -> None:
    """In place ``x *= c``."""
    torch._foreach_mul_(_locals(x), c)


def copy_(out: Sequence[Tensor], x: Sequence[Tensor]) -> None:
    """In place ``out = x``."""
    torch._foreach_copy_(_locals(out), _locals(x))


def set_gradients(parameters: Iterable[Tensor], gradient: Iterable[Tensor | None]) -> None:
    """Give each parameter its part of ``gradient`` as its ``.grad``."""
    for p, g in zip(parameters, gradient, strict=True):
        p.grad = g


def combine(terms: Combination) -> Vector:
    """The new vector ``sum_i c_i x_i``."""
    out = zeros_like(terms[0][1])
    add_(out, terms)
    return out


def zeros_like(x: Iterable[Tensor]) -> Vector:
    """The zero vector of the shapes, types and devices of ``x`` (no autograd history)."""
    return [torch.zeros_like(a, requires_grad=False) for a in x]


def clip_(x: Sequence[Tensor], max_norm: float | None) -> float:
    """Scale ``x`` in place to norm at most ``max_norm`` (``None``: leave it) and return the norm that it had."""
    size = norm(x)
    if max_norm is not None and size > max_norm:
        scale_(x, max_norm / size)
    return size
