"""What a model has read, and what it says next: by its cache, or all over again where rows cannot be taken apart.

Rows are selected, repeated and left out while they are read (``prompts``). A cache of keys and values allows that by
transformers' public interface; the states of recurrent layers (Mamba, and hybrids of both) do not. While text is
generated, a cache grows in place, where transformers' own cache copies all its columns for each new one.
"""

import inspect
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from ofmu_pl.networks.adapters import below
from ofmu_pl.networks.predictions import Predictions, predict

ROOM = 16  # columns that are made at a time


class ReadAgain:
    """Takes the place of a cache: the tokens themselves, (B, P), which are read again with each that follows.

    Where the model reads padding in spite of the mask (RWKV), each row is read ``alone``.
    """

    def __init__(self, ids: Tensor, positions: Tensor, alone: bool) -> None:
        self.ids, self.positions, self.alone = ids, positions, alone
        self.layers: list[DynamicLayer] = []  # nothing is cached

    def add(self, ids: Tensor, positions: Tensor) -> None:
        """Append tokens."""
        self.ids, self.positions = torch.cat([self.ids, ids], 1), torch.cat([self.positions, positions], 1)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows, each any number of times."""
        self.ids, self.positions = self.ids[indices], self.positions[indices]


Cache: TypeAlias = DynamicCache | ReadAgain


def begin(model: PreTrainedModel, ids: Tensor, mask: Tensor, positions: Tensor) -> Cache:
    """Read tokens, (B, P), whose logits nobody needs; the mask, (B, P), is 1 where one may be attended to."""
    cache = DynamicCache(config=model.config)
    if not _selects_rows(below(model), cache):
        return ReadAgain(ids, positions, alone=_reads_padding(model))
    if ids.shape[1]:
        go_on(model, cache, ids, mask, positions, keep=1)  # not by the model's body alone: shards need all of it
    return cache


def go_on(model: PreTrainedModel, cache: Cache, ids: Tensor, mask: Tensor, positions: Tensor, keep: int) -> Predictions:
    """Read further columns, which are in the cache afterwards; returns what follows the last of them, (B, keep, V).

    The mask, (B, P + S), is that of all columns, read before or now.
    """
    how: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
    if isinstance(cache, ReadAgain):
        cache.add(ids, positions)
        ids, positions, how = cache.ids, cache.positions, {"use_cache": False}
        if cache.alone:
            return Predictions(_row_by_row(model, ids, mask)[:, -keep:])
    return predict(model, input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=keep, **how)


def _selects_rows(model: nn.Module, cache: DynamicCache) -> bool:
    """Whether the model keeps what it has read in this cache, and all of it as columns of rows."""
    taken = "past_key_values" in inspect.signature(model.forward).parameters
    return taken and not any(hasattr(layer, "recurrent_states") for layer in cache.layers)


def _reads_padding(model: PreTrainedModel) -> bool:
    """Whether a row of two tokens has other logits with padding before it."""
    ids = torch.tensor([[0, 1, 2]], device=model.device)
    padded = model(input_ids=ids, attention_mask=(ids > 0).long(), use_cache=False).logits[:, -1]
    return not torch.allclose(padded, model(input_ids=ids[:, 1:], use_cache=False).logits[:, -1], rtol=1e-2, atol=1e-2)


def _row_by_row(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
    """Logits, (B, P, V), of rows that are read without their padding, where they are 0."""
    rows = []
    for row, real in zip(ids, mask.bool(), strict=True):
        logits = model(input_ids=row[real][None], use_cache=False).logits[0]
        rows.append(logits.new_zeros(len(row), logits.shape[-1]))
        rows[-1][real] = logits
    return torch.stack(rows)


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """A layer whose keys and values, (B, H, S, D), are the first rows and columns of tensors with room for more."""

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
                self._whole[k] = F.pad(self._whole[k][:rows], (0, 0, 0, end - begin + ROOM))
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


def make_roomy(cache: Cache) -> None:
    """Give room to those layers of a cache that keep every column; the others stay as they are."""
    for k, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer and layer.is_initialized:
            cache.layers[k] = RoomyLayer(layer)


def filled(going: Sequence[int]) -> list[int]:
    """The places of rows that go on, in an order that leaves as many as possible where they are.

    >>> filled([0, 2, 3, 6])
    [0, 6, 2, 3]
    """
    ahead = {k for k in going if k < len(going)}
    behind = iter(k for k in going if k >= len(going))
    return [k if k in ahead else next(behind) for k in range(len(going))]
