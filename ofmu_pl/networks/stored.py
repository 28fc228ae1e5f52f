"""Keeps the frozen matrices of a network in bfloat16, and multiplies by them in the type of what comes in.

So a run in float32 computes in float32 on weights that were rounded once, and differences of its gradients are as exact
as on a base in float32; under bf16-mixed the products are of bfloat16. bitsandbytes does alike with weights in 4 bits.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ofmu_pl.networks.rounding import matrices
from ofmu_pl.support.errors import UserError


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


def store_in_bfloat16(model: nn.Module) -> None:
    """Round the weights of all linear layers that are frozen, but the output layer's, to bfloat16, in place.

    Embeddings, norms, biases and stacked matrices of experts stay as they are.

    Raises:
        UserError: The network has no such layer.
    """
    layers = {name: model.get_submodule(name) for name, _, _ in matrices(model)}
    frozen = {n: m for n, m in layers.items() if isinstance(m, nn.Linear) and not m.weight.requires_grad}
    if not frozen:
        raise UserError(
            "The network has no frozen linear layer that could be kept in bfloat16: leave out model.network.base_dtype."
        )
    for name, layer in frozen.items():
        model.set_submodule(name, StoredLinear(layer, torch.bfloat16).train(layer.training))


def widen(model: nn.Module) -> None:
    """Turn weights that are stored in a narrower type into float32, in place, so that adapters can be added to them."""
    for module in model.modules():
        if isinstance(module, StoredLinear):
            module.float()


def keep_differentiable(model: nn.Module) -> None:
    """Keep bitsandbytes from packing weights in 4 bits for CPUs with AVX512-BF16, in place.

    It would pack them in the first pass without a graph, compute in bfloat16 from then on, and give wrong gradients
    (0.50.2: by a fifth and more on a tiny Llama).
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False  # type: ignore[assignment]
