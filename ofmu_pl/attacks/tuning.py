"""Short trainings at several learning rates, looked at on the way: what attacks that train have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

from ofmu_pl.attacks.base import Finding
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data.sampler import batch_indices
from ofmu_pl.metrics.result import Metric
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError, check_range

Draw = Callable[[int], Batch]
"""Gives the k-th batch that is trained on."""
Look = Callable[[nn.Module], np.ndarray]
"""Gives (n,) values of rows of a model, of which an attacker wants a mean as high as can be."""


def check_training(steps: int, every: int, batch_size: int, rates: Sequence[float], share: float) -> None:
    """Refuse settings of a training that are out of range.

    Args:
        steps: Number of steps.
        every: Number of steps between two looks.
        batch_size: Number of rows of a step.
        rates: Learning rates.
        share: Share of the forgotten rows that is shown.

    Raises:
        UserError: One of them is.
    """
    check_range(1, steps=steps, every=every, batch_size=batch_size)
    if not 0 < share < 1:
        raise UserError(
            f"attacks.share is {share}: give the part of the forgotten rows that is shown, above 0 and below 1."
        )
    if not rates or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise UserError(f"attacks.rates is {list(rates)}: give learning rates above 0.")


def sides(n: int, share: float, seed: int, together: int = 1) -> tuple[list[int], list[int]]:
    """Places of the forgotten rows that are shown, and of those that are asked for; both have one at least.

    Args:
        n: Number of rows.
        share: Share that is shown.
        seed: Seed of the draw.
        together: Number of rows, one after another, that go to one side.

    Raises:
        UserError: There is one row.

    >>> sides(6, 0.5, seed=1, together=2)
    ([0, 1, 2, 3], [4, 5])
    """
    if n < 2:
        raise UserError(
            "There is one forgotten row, so none is left to ask for: take Relearn with the source retain instead."
        )
    together = together if n > together else 1
    groups = -(-n // together)
    order = np.random.default_rng(seed).permutation(groups)
    k = min(groups - 1, max(1, round(share * groups)))
    rows = [list(range(n)[g * together : (g + 1) * together]) for g in order]
    return list(chain.from_iterable(rows[:k])), sorted(chain.from_iterable(rows[k:]))


def stream(subject: Subject, split: str, places: Sequence[int], batch_size: int, seed: int) -> Draw:
    """Batches of rows of a split.

    Args:
        subject: Whose data it is.
        split: Name of the split.
        places: Places in it that are drawn from.
        batch_size: Number of rows of a batch.
        seed: Seed of the order.
    """
    return lambda k: subject.batch(split, [places[i] for i in drawn(len(places), batch_size, seed, k)])


def drawn(n: int, batch_size: int, seed: int, number: int) -> list[int]:
    """Places of a batch among n rows.

    Args:
        n: Number of rows.
        batch_size: Number of rows of a batch.
        seed: Seed of the order.
        number: Number of the batch.
    """
    return list(batch_indices(n, batch_size, seed, "relearn", number).tolist())


def sweep(
    subject: Subject, draw: Draw, look: Look, metric: Metric, rates: Sequence[float], steps: int, every: int
) -> Finding:
    """Train with AdamW at every rate, each time from the subject's weights; what is found is the best that a look saw.

    Args:
        subject: The model.
        draw: What is trained on.
        look: What is looked at, step 0 included.
        metric: Metric of the looks' means.
        rates: Learning rates; the curve is that of the best.
        steps: Number of steps.
        every: Number of steps between two looks.
    """
    best, gradients, broken = Finding(), 0, []
    for rate in rates:
        looks, done = _train(subject, draw, look, rate, steps, every)
        gradients += done
        if done < steps:
            broken.append(f"{rate:g} (after {done} steps)")
        top = max(looks, key=lambda x: float(looks[x].mean()))
        found = Finding.of_rows(metric, looks[top].tolist())
        if not best.figures or found.figures[metric.name] > best.figures[metric.name]:
            best = found
            best.x, best.y = list(looks), [float(values.mean()) for values in looks.values()]
    best.gradients = gradients
    if broken:
        best.broken = f"The loss was no longer finite at the rate {', '.join(broken)}."
    return best


def _train(
    subject: Subject, draw: Draw, look: Look, rate: float, steps: int, every: int
) -> tuple[dict[int, np.ndarray], int]:
    """Looks by step, and the number of steps until the loss was not finite."""
    model: Any = subject.build()
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    looks = {0: look(model)}
    for step in range(1, steps + 1):
        loss = subject.recipe.sample_losses(model, draw(step - 1)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        if step % every == 0 or step == steps:
            values = look(model)
            if not (torch.isfinite(loss) and np.isfinite(values).all()):
                return looks, step - 1
            looks[step] = values
    return looks, steps
