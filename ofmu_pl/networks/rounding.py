"""Rounds the matrices of a network to a few bits, and leaves them in float32: what a rounded model says, on any device.

The arithmetic stays in float32, so a figure shows what rounding the weights does, and nothing of a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from ofmu_pl.support.extras import extra

Width = int | Literal["nf4", "fp4"]
"""Number of bits, of steps that are alike in a channel; or the name of one of bitsandbytes' 4-bit types."""
BLOCK = 64
"""Weights that share a scale in bitsandbytes' 4-bit types, which is its default."""
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
    rounded = []
    for name, weight, channels in matrices(model):
        with torch.no_grad():
            if isinstance(width, int):
                weight.copy_(round_to_nearest(weight, width, channels))
            else:
                weight.copy_(round_in_blocks(weight, width))
        rounded.append(name)
    return rounded


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
    rounded: Tensor = theirs.dequantize_4bit(codes, scales).flatten()[: weight.numel()].view_as(weight)
    return rounded
