"""What a model has read, and what it says next: by its cache, or all over again where rows cannot be taken apart.

Rows are selected, repeated and left out while they are read (``prompts``). A cache of keys and values allows that by
transformers' public interface; the states of recurrent layers (Mamba, and hybrids of both) do not.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache


class ReadAgain:
    """Stands in the place of a cache: the tokens themselves, which are read again with each that follows.

    Attributes:
        ids: Tokens read so far, (B, P).
        positions: Their positions, (B, P).
        layers: None, since nothing is cached.
    """

    def __init__(self, ids: Tensor, positions: Tensor) -> None:
        self.ids, self.positions = ids, positions
        self.layers: list[Any] = []

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows, each any number of times."""
        self.ids, self.positions = self.ids[indices], self.positions[indices]


def begin(model: Any, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any = None) -> Any:
    """Read columns of which no logits are made; returns the cache, or what stands in its place.

    Args:
        model: A Hugging Face causal language model.
        ids: Tokens, (B, P), P at least 0.
        mask: 1 where a column may be attended to, (B, P), or more columns where the cache holds some.
        positions: Positions of the tokens, (B, P).
        cache: Columns that were read before, in a cache that these come after; ``None``: none.
    """
    whole = getattr(model, "get_base_model", lambda: model)()
    if cache is None:
        cache = DynamicCache(config=model.config)
        if not _selects_rows(whole, cache):
            return ReadAgain(ids, positions)
    if ids.shape[1]:
        body = whole.base_model  # under adapters too: no logits of prompts
        body(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True)
    return cache


def go_on(model: Any, cache: Any, ids: Tensor, mask: Tensor, positions: Tensor, keep: int) -> Tensor:
    """Read further columns, which are in the cache afterwards; returns the logits of the last of them, (B, keep, V).

    Args:
        model: The model that began.
        cache: What ``begin`` returned.
        ids: Tokens, (B, S).
        mask: 1 where a column, read before or now, may be attended to, (B, P + S).
        positions: Positions of the tokens, (B, S).
        keep: Number of columns whose logits are made, at most S.
    """
    how: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
    if isinstance(cache, ReadAgain):
        cache.ids, cache.positions = torch.cat([cache.ids, ids], 1), torch.cat([cache.positions, positions], 1)
        ids, positions, how = cache.ids, cache.positions, {"use_cache": False}
    logits: Tensor = model(
        input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=keep, **how
    ).logits
    return logits


def _selects_rows(model: nn.Module, cache: Any) -> bool:
    """Whether the model keeps what it has read in this cache, and all of it as columns of rows."""
    taken = "past_key_values" in inspect.signature(model.forward).parameters
    return taken and not any(hasattr(layer, "recurrent_states") for layer in cache.layers)
