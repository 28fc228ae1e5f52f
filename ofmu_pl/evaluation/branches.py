"""Prompts and answers that begin alike are read once: what is in the cache is cut where others branch off."""

import sys
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from ofmu_pl.data.encoded import shared
from ofmu_pl.evaluation.columns import Cache, begin, with_layers
from ofmu_pl.evaluation.prompts import PromptBatch, padded, read_prompts

Tokens = tuple[int, ...]


def trunk_of(answers: Sequence[Tokens]) -> Tokens:
    """The answer whose beginning the others share most tokens of.

    >>> trunk_of([(9, 9), (1, 2, 3), (1, 2, 4), (1, 5)])
    (1, 2, 3)
    """
    order = sorted(answers)
    alike = [shared(a, b) for a, b in pairwise(order)]  # of any two, the least between them
    gains = []
    for i in range(len(order)):
        gains.append(sum(accumulate(alike[i:], min)) + sum(accumulate(alike[:i][::-1], min)))
    return order[max(range(len(order)), key=gains.__getitem__)]


def can_branch(cache: Cache, columns: int) -> bool:
    """Whether a cache of so many columns can be cut: windows drop columns, and recurrent layers have none."""
    kinds = (DynamicLayer, DynamicSlidingWindowLayer)
    return bool(cache.layers) and all(
        type(layer) in kinds and columns < getattr(layer, "sliding_window", sys.maxsize) for layer in cache.layers
    )


def read_common(model: PreTrainedModel, prompts: Sequence[Tokens]) -> PromptBatch | None:
    """Read the tokens that all prompts begin with, once; ``None``: nothing is gained, or the cache cannot be cut.

    A chat template may write a system turn and a date before each question, which are half of what prompts hold.
    """
    if len(prompts) < 2:
        return None
    first, last = min(prompts), max(prompts)
    n = min(shared(first, last), min(map(len, prompts)) - 1)
    if n < 2:
        return None
    common = read_prompts(model, [list(first[:n])])
    return common if can_branch(common.cache, max(map(len, prompts))) else None


def read_after(model: PreTrainedModel, common: PromptBatch, prompts: Sequence[Tokens]) -> PromptBatch:
    """Run a model over what is left of prompts; the result is that of ``read_prompts``."""
    rests = [prompt[common.mask.shape[1] :] for prompt in prompts]
    read = common.rows(torch.zeros(len(prompts), dtype=torch.long, device=model.device))
    ids, mask, positions = read.columns_of(padded(rests, model.device))
    begin(model, ids, mask, positions, read.cache)
    return branch(read, range(len(rests)), [len(x) for x in rests], [x[-1] for x in rests])


def branch(prompts: PromptBatch, rows: Sequence[int], depths: Sequence[int], last: Sequence[int]) -> PromptBatch:
    """Take prompts up to a token of the answer that ``score_answers`` read after them, with a cache of their own.

    Columns are moved so that each row ends in the last one, as prompts do: there are no gaps, hence kernels and windows
    that count columns see what they would see if the tokens had been read alone.

    Args:
        prompts: B prompts whose cache holds answers too; positions count columns.
        rows: Numbers of the prompts that the n branches take.
        depths: How many tokens after the prompt's end each takes, all but the last of them the answer's; fewer than 0
            where a branch ends within the prompt.
        last: The last token of each, which need not be the answer's.
    """
    device = prompts.last.device
    row, depth = torch.tensor(rows, device=device), torch.tensor(depths, device=device)
    end = prompts.mask.shape[1] - 1 + depth  # the column of the last token
    start = prompts.mask.shape[1] - 1 - prompts.position[row]
    width = int((end - start).max())
    columns = end[:, None] - width + torch.arange(width + 1, device=device)
    real = columns >= start[:, None]
    columns.clamp_(min=0)
    mask = F.pad(prompts.mask, (0, max(0, *depths)), value=1)[row[:, None], columns] * real
    kept = columns[:, None, :-1]

    def cut(x: Tensor) -> Tensor:  # as x[row[:, None], :, kept] moved to (n, H, width, D), in half of its time
        heads, size, depth = x.shape[1:]
        places = (row[:, None, None] * heads + torch.arange(heads, device=device)[:, None]) * size + kept
        return x.reshape(-1, depth).index_select(0, places.flatten()).view(len(row), heads, width, depth)

    layers = [_layer(layer, cut(layer.keys), cut(layer.values)) for layer in prompts.cache.layers]
    return PromptBatch(
        with_layers(prompts.cache, layers), mask, torch.tensor(last, device=device), prompts.position[row] + depth
    )


def merge(parts: Sequence[PromptBatch]) -> PromptBatch:
    """Put prompts into one batch; their own caches are spent, layer by layer, so that none is there twice."""
    width = max(x.mask.shape[1] for x in parts)
    ahead = [width - x.mask.shape[1] for x in parts]

    def join(tensors: Iterable[Tensor]) -> Tensor:
        return torch.cat([F.pad(x, (0, 0, n, 0)) for x, n in zip(tensors, ahead, strict=True)])

    merged = []
    while parts[0].cache.layers:
        layers = [x.cache.layers.pop(0) for x in parts]
        merged.append(_layer(layers[0], join(x.keys for x in layers), join(x.values for x in layers)))
    mask = torch.cat([F.pad(x.mask, (n, 0)) for x, n in zip(parts, ahead, strict=True)])
    last, position = torch.cat([x.last for x in parts]), torch.cat([x.position for x in parts])
    return PromptBatch(with_layers(parts[0].cache, merged), mask, last, position)


def _layer(like: DynamicLayer, keys: Tensor, values: Tensor) -> DynamicLayer:
    layer = copy(like)
    vars(layer).update(keys=keys, values=values)
    if isinstance(layer, DynamicSlidingWindowLayer):
        vars(layer).update(cumulative_length=keys.shape[-2])
    return layer
