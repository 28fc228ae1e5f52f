"""Weights in fewer bits: matrices rounded or pruned, and frozen ones kept in bfloat16.

``round_matrices`` leaves float32 in place, and so shows what rounding the weights does, on any device, and nothing of a
kernel. ``StoredLinear`` multiplies by frozen matrices in bfloat16 in the type of what comes in. So a run in float32
computes in float32 on weights that were rounded once, and differences of its gradients are as exact as on a base in
float32; under bf16-mixed the products are of bfloat16. bitsandbytes does alike with weights in 4 bits.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from ofmu_pl.support.extras import extra

Width = int | Literal["nf4", "fp4"]
"""Number of bits, of steps that are alike in a channel; or the name of one of bitsandbytes' 4-bit types."""
BLOCK = 64  # weights that share a scale in bitsandbytes' 4-bit types, which is its default
MATRICES: dict[type[nn.Module], int] = {nn.Linear: 0, nn.Conv2d: 0, Conv1D: 1}
"""Layers whose weights are rounded, with the dimension of output channels (GPT-2's ``Conv1D`` is transposed)."""


def matrices(model: nn.Module) -> Iterator[tuple[str, Tensor, int]]:
    """Names of linear and convolutional layers, their weights, and the dimension of output channels.

    As in bitsandbytes, a language model's output layer is left out, and so is what is no such layer: embeddings, norms,
    the stacked matrices of experts.
    """
    head = getattr(model, "get_output_embeddings", lambda: None)()
    for name, module in model.named_modules():
        kind = next((kind for kind in MATRICES if isinstance(module, kind)), None)
        if kind is not None and module is not head:
            yield name, module.weight, MATRICES[kind]


def round_matrices(model: nn.Module, width: Width) -> list[str]:
    """Round the weights of all ``matrices``, in place; biases stay as they are.

    Returns:
        Names of the layers whose weights were rounded.

    >>> model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Embedding(4, 3))
    >>> round_matrices(model, 4)
    ['0']
    """
    if isinstance(width, int):
        return _changed(model, lambda weight, channels: round_to_nearest(weight, width, channels))
    return _changed(model, lambda weight, _: round_in_blocks(weight, width))


def prune_matrices(model: nn.Module, share: float) -> list[str]:
    """Set the ``round(share * n)`` smallest of each matrix' n weights by magnitude to 0, in place; no other changes.

    Args:
        model: A network; pruned are the ``matrices`` that are rounded, too.
        share: Share of the weights, from 0 to 1.

    Returns:
        Names of the layers whose weights were pruned.

    >>> layer = nn.Linear(4, 1)
    >>> _ = layer.weight.data.copy_(torch.tensor([[0.5, -2.0, -0.1, 1.0]]))
    >>> prune_matrices(nn.Sequential(layer), 0.5), layer.weight.tolist()
    (['0'], [[0.0, -2.0, 0.0, 1.0]])
    """

    def pruned(weight: Tensor, channels: int) -> Tensor:
        flat = weight.flatten()
        least = flat.abs().topk(round(share * flat.numel()), largest=False).indices
        return flat.index_fill(0, least, 0.0).view_as(weight)

    return _changed(model, pruned)


@torch.no_grad()
def _changed(model: nn.Module, change: Callable[[Tensor, int], Tensor]) -> list[str]:
    """Change the weights of all ``matrices``, in place, by a function of them and their dimension of channels."""
    names = []
    for name, weight, channels in matrices(model):
        weight.copy_(change(weight, channels))
        names.append(name)
    return names


def round_to_nearest(weight: Tensor, bits: int, channels: int = 0) -> Tensor:
    """Round each output channel c to the nearest multiple of its own step, ``max|w_c| / (2^(bits-1) - 1)``.

    Symmetric, so that 0 stays 0; the largest weight of a channel stays as it is.

    Args:
        weight: A matrix, or the weights of a convolution.
        bits: Number of bits, 2 at least.
        channels: Dimension of the output channels.

    >>> round_to_nearest(torch.tensor([[0.9, 0.2, 3.0], [-12.0, 0.0, 5.0]]), bits=3).tolist()
    [[1.0, 0.0, 3.0], [-12.0, 0.0, 4.0]]
    """
    others = [d for d in range(weight.dim()) if d != channels]
    step = weight.abs().amax(others, keepdim=True) / (2 ** (bits - 1) - 1)
    return (weight / step.where(step > 0, 1.0)).round() * step


def round_in_blocks(weight: Tensor, kind: Literal["nf4", "fp4"]) -> Tensor:
    """Round weights of any shape by bitsandbytes; each ``BLOCK`` of them in a row has a scale.

    There are 16 levels, fitted to a normal distribution (``nf4``), or floats of 4 bits (``fp4``).
    """
    theirs = extra("bitsandbytes.functional", f"Rounding to {kind}")  # imports slowly and talks: only where needed
    # On the CPU bitsandbytes 0.50 gives other numbers where a row is no whole number of blocks, so a row is a block.
    rows = F.pad(weight.flatten(), (0, -weight.numel() % BLOCK)).view(-1, BLOCK)
    codes, scales = theirs.quantize_4bit(rows, blocksize=BLOCK, quant_type=kind)
    return theirs.dequantize_4bit(codes, scales).flatten()[: weight.numel()].view_as(weight)


class StoredLinear(nn.Linear):
    """``x W^T + b`` in the type of x (or autocast's), whatever the type of W, which is not trained.

    Args:
        layer: The layer in whose place it stands.
        dtype: Type of W; b stays as it is.

    Example:
        >>> layer = StoredLinear(nn.Linear(3, 2), torch.bfloat16)
        >>> layer.weight.dtype, layer(torch.ones(1, 3)).dtype
        (torch.bfloat16, torch.float32)
    """

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.weight = nn.Parameter(layer.weight.detach().to(dtype), requires_grad=False)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """(..., out) from (..., in)."""
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        out: Tensor = _Product.apply(x.to(dtype), self.weight)
        return out if self.bias is None else out + self.bias.to(dtype)


class _Product(torch.autograd.Function):
    """``x W^T``, of which a graph keeps W as it is stored; its derivatives are such products again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return F.linear(x, weight.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return _Product.apply(grad, weight.t()), None


def store_in_bfloat16(model: nn.Module) -> int:
    """Round the weights of all linear layers that are frozen, but the output layer's, to bfloat16, in place.

    Embeddings, norms, biases and stacked matrices of experts stay as they are.

    Returns:
        The number of such layers.
    """
    layers = {name: model.get_submodule(name) for name, _, _ in matrices(model)}
    frozen = {n: m for n, m in layers.items() if isinstance(m, nn.Linear) and not m.weight.requires_grad}
    for name, layer in frozen.items():
        model.set_submodule(name, StoredLinear(layer, torch.bfloat16).train(layer.training))
    return len(frozen)


def widen(model: nn.Module) -> None:
    """Turn weights that are stored in a narrower type into float32, in place, so that adapters can be added to them."""
    for module in model.modules():
        if isinstance(module, StoredLinear):
            module.weight = nn.Parameter(module.weight.float(), requires_grad=False)


@contextmanager
def written_in(dtype: torch.dtype | None, model: nn.Module) -> Iterator[None]:
    """A context in which the parameters are in another type, on the host; ``None``: they stay as they are."""
    kept = [(p, p.data) for p in model.parameters()] if dtype is not None else []
    try:
        for p, data in kept:
            p.data = data.to("cpu", dtype)
        yield
    finally:
        for p, data in kept:
            p.data = data


def keep_differentiable(model: nn.Module) -> None:
    """Keep bitsandbytes from packing weights in 4 bits for CPUs with AVX512-BF16, in place.

    It would pack them in the first pass without a graph, compute in bfloat16 from then on, and give wrong gradients
    (0.50.2: by a fifth and more on a tiny Llama).
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]
