"""Prunes the matrices of a network: the weights that are nearest to 0 become 0, and no other changes."""

import torch
from torch import nn

from ofmu_pl.networks.rounding import matrices


def prune_matrices(model: nn.Module, share: float) -> list[str]:
    """Set the ``round(share * n)`` smallest of each matrix' n weights by magnitude to 0, in place.

    Args:
        model: A network; pruned are the matrices that are rounded, too (``networks.rounding.matrices``).
        share: Share of the weights, from 0 to 1.

    Returns:
        Names of the layers whose weights were pruned.

    >>> layer = nn.Linear(4, 1)
    >>> _ = layer.weight.data.copy_(torch.tensor([[0.5, -2.0, -0.1, 1.0]]))
    >>> prune_matrices(nn.Sequential(layer), 0.5), layer.weight.tolist()
    (['0'], [[0.0, -2.0, 0.0, 1.0]])
    """
    pruned = []
    for name, weight, _ in matrices(model):
        flat = weight.detach().flatten()
        least = flat.abs().topk(round(share * flat.numel()), largest=False).indices
        with torch.no_grad():
            weight.copy_(flat.index_fill(0, least, 0.0).view_as(weight))
        pruned.append(name)
    return pruned
