"""Exact gradients of single samples, of which only the loss, the norm and an inner product are kept."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, add_, dot, norm, zeros_like
from ofmu_pl.networks.base import Batch, Network, evaluating
from ofmu_pl.support.errors import UserError


@dataclass(frozen=True)
class SampleGradients:
    """What is kept of the gradients of N samples, all float64.

    Attributes:
        losses: Losses ``l_i``, (N,), nats (for text: per token).
        norms: Norms ``|g_i|``, (N,), of the gradients of l_i by all trainable parameters; nats per unit of parameter.
        similarities: Cosines ``<g_i, d> / (|g_i||d|)``, (N,), with a direction d; 0 where a norm is 0.
    """

    losses: np.ndarray
    norms: np.ndarray
    similarities: np.ndarray


def mean_gradient(recipe: Network, module: nn.Module, batches: Iterable[Batch]) -> Vector:
    """``(1/N) sum_i g_i`` over all samples of all batches, one tensor per trainable parameter.

    The network is in eval mode meanwhile, so that no sample sees another's statistics; every sample counts alike.
    """
    parameters = trainable(module)
    total, n = zeros_like(parameters), 0
    with evaluating(module):
        for batch in batches:
            losses = recipe.sample_losses(module, batch)
            add_(total, [(1.0, torch.autograd.grad(losses.sum(), parameters, materialize_grads=True))])
            n += len(losses)
    if n == 0:
        raise UserError("There is no sample to take a mean gradient of: give the data a split that holds rows.")
    for x in total:
        x.div_(n)
    if not np.isfinite(norm(total)):
        raise UserError("The mean gradient is not finite: the model's weights are broken, give a sound checkpoint.")
    return total


def sample_gradients(
    recipe: Network, module: nn.Module, batches: Iterable[Batch], direction: Vector
) -> SampleGradients:
    """Compute losses, gradient norms and similarities with ``direction``, with one gradient in memory at a time.

    Each sample takes one forward and one backward pass: exact for every network, at the price of a training step.
    (``torch.func.vmap`` would need a copy of all weights' gradients for each sample of a batch.)

    ``direction`` may be ``mean_gradient`` of the retain set; batches of one sample have no padding.
    """
    parameters = trainable(module)
    length = norm(direction)
    rows: list[tuple[float, float, float]] = []
    with evaluating(module):
        for batch in batches:
            for i in range(len(batch["labels"])):
                loss = recipe.sample_losses(module, {name: x[i : i + 1] for name, x in batch.items()})
                gradient = torch.autograd.grad(loss.sum(), parameters, materialize_grads=True)
                size = norm(gradient)
                similarity = dot(gradient, direction) / (size * length) if size * length else 0.0
                rows.append((loss.item(), size, similarity))
    return SampleGradients(*np.array(rows, dtype=np.float64).reshape(-1, 3).T)
