"""A cache that changes in place: generation writes one column a step, where transformers' own copies all before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import DynamicLayer

COLUMNS = 16
"""Columns of room that are made at a time."""


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """A layer whose keys and values, (B, H, S, D), are the first rows and columns of tensors with room for more.

    Args:
        layer: The layer that it goes on from, which is spent.
    """

    def __init__(self, layer: DynamicLayer) -> None:
        super().__init__()
        self.__dict__.update(layer.__dict__)
        self._whole = [layer.keys, layer.values]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append columns; returns all keys and values."""
        rows, begin = len(key_states), self.keys.shape[-2]
        end = begin + key_states.shape[-2]
        for k, x in enumerate((key_states, value_states)):
            if end > self._whole[k].shape[-2]:
                self._whole[k] = F.pad(self._whole[k][:rows], (0, 0, 0, end - begin + COLUMNS))
            self._whole[k][:rows, :, begin:end] = x
        self._show(rows, end)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows alone, each once; those that stay in their places are not copied."""
        moved = (indices != torch.arange(len(indices), device=indices.device)).nonzero()[:, 0]
        for x in self._whole:
            x[moved] = x[indices[moved]]
        self._show(len(indices), self.keys.shape[-2])

    def _show(self, rows: int, columns: int) -> None:
        self.keys, self.values = (x[:rows, :, :columns] for x in self._whole)


def make_roomy(cache: Any) -> None:
    """Give room to those layers of a cache that keep every column; the others stay as they are."""
    plain = [type(layer) is DynamicLayer and layer.is_initialized for layer in cache.layers]
    cache.layers = [RoomyLayer(layer) if x else layer for x, layer in zip(plain, cache.layers, strict=True)]


def filled(going: Sequence[int]) -> list[int]:
    """The places of rows that go on, in an order that leaves as many as possible where they are.

    >>> filled([0, 2, 3, 6])
    [0, 6, 2, 3]
    """
    ahead = {k for k in going if k < len(going)}
    behind = iter(k for k in going if k >= len(going))
    return [k if k in ahead else next(behind) for k in range(len(going))]
