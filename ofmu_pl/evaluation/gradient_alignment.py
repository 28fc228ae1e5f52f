"""How far the loss gradients of forget rows agree: one gradient a row, and one sum of unit vectors."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.ranks import ALONE, Ranks
from ofmu_pl.core.vectors import add_, dot, is_sharded, norm, zeros_like
from ofmu_pl.data.sampler import evenly
from ofmu_pl.metrics.alignment import ALIGNMENT, mean_cosine
from ofmu_pl.metrics.result import MetricResult
from ofmu_pl.modules.reference_scores import facts_of
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.kept import cache_folder, content_path, keep, read_shared

ROWS = 64  # most rows whose gradients are taken


def gradient_alignment(pl_module: Any, model: nn.Module, data: Any, rows: int | None = None) -> MetricResult | None:
    """The mean cosine between the gradients of pairs of different forget rows, at a model's weights.

    A row's gradient is that of its mean answer loss by all parameters that are trained. Of a language model the
    result is kept by content. Takes all ranks. At most ``ROWS`` rows, or ``rows`` if they are fewer, are looked at.
    ``None``: fewer than two have a gradient, nothing is trained, or the parameters are of 16 bits.
    """
    run, index = pl_module.run, alignment_rows(data, rows)
    path = None
    if data.modality == "text" and (folder := cache_folder()) is not None:
        trained = [name for name, p in model.named_parameters() if p.requires_grad]
        facts = facts_of(model, data) | {"forget": data.hashes["forget"], "rows": len(index), "trained": trained}
        path = content_path(folder, "alignment", facts)
    found = read_shared(path)
    if found is None:
        batches = [data.plain("forget", [i]) for i in index]
        found = sum_of_units(model, partial(pl_module.recipe.sample_losses, model), batches, run.ranks)
        if path is not None and run.ranks.rank == 0:
            keep(path, found)
    square, n = found
    return ALIGNMENT.result(mean_cosine(square, n), n) if n > 1 else None


def alignment_rows(data: Any, rows: int | None) -> Sequence[int]:
    """Numbers of the forget rows that are looked at, at most ``rows``, evenly spaced."""
    return evenly(range(len(data.splits["forget"])), min(ROWS, rows or ROWS))


def both_know(found: dict[str, MetricResult], values: dict[str, float], n: int) -> None:
    """Have a retrained model's metrics and its reference's values tell the same alignment, of n rows."""
    name = ALIGNMENT.name
    if name in found:
        values[name] = found[name].value
    elif name in values:
        found[name] = ALIGNMENT.result(values[name], n)


def sum_of_units(
    model: nn.Module, losses: Callable[[Batch], Tensor], batches: Sequence[Batch], ranks: Ranks = ALONE
) -> tuple[float, int]:
    """``|sum_i g_i / |g_i||^2`` over the gradients of several losses, and the number of those that do not vanish.

    Ranks take a share of the losses each; where they hold shards of the network, all take every loss together.
    """
    parameters = trainable(model)
    if not parameters or parameters[0].dtype not in (torch.float32, torch.float64):
        return 0.0, 0
    engine, total, n = FiniteDifference(parameters), zeros_like(parameters), 0
    whole = not is_sharded(parameters)
    with torch.enable_grad():
        for batch in batches[ranks.rank :: ranks.size] if whole else batches:
            gradient = engine.expand([partial(_total, losses, batch, parameters[0].device)], order=1).gradient
            size = norm(gradient)
            if 0.0 < size < math.inf:
                add_(total, [(1 / size, gradient)])
                n += 1
            del gradient  # before the next one is made
    if whole:
        ranks.sum_(total)
        n = round(ranks.total(n))
    return dot(total, total), n


def _total(losses: Callable[[Batch], Tensor], batch: Batch, device: torch.device) -> Tensor:
    return losses({name: x.to(device) for name, x in batch.items()}).sum()
