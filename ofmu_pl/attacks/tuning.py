"""Short trainings at several learning rates, looked at on the way: what attacks that train have in common."""

import math
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from torch import nn

from ofmu_pl.attacks.base import Attack, Finding
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data.sampler import batch_indices
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError, check_range

Draw = Callable[[int], Batch]  # gives the k-th batch that is trained on
Look = Callable[[nn.Module], np.ndarray]
"""Gives (n,) values of rows of a model, of which an attacker wants a mean as high as can be."""
BATCH = 8  # number of rows of a step


class TrainingAttack(Attack, ABC):
    """An attack that trains with AdamW at several rates and asks for ``rows`` on the way; see its subclasses."""

    x_label = "steps of training"
    untouched_at = 0  # before the first step

    def __init__(
        self,
        steps: int = 60,
        every: int = 10,
        rates: Sequence[float] = (1e-5, 1e-4, 1e-3),
        rows: int | None = 100,
    ) -> None:
        check_range(1, steps=steps, every=every, rows=rows)
        if not rates or not all(math.isfinite(rate) and rate > 0 for rate in rates):
            raise UserError(f"attacks.rates is {list(rates)}: give learning rates above 0.")
        self.steps, self.every, self.rates, self.rows = steps, every, list(rates), rows
        self.gradients = len(self.rates) * steps

    def sweep(self, subject: Subject, draw: Draw, look: Look, asked: list[int]) -> Finding:
        """Train at every rate, each time from the subject's weights; what is found is the best that a look saw.

        A look is at the rows at the places ``asked``, before the first step, too; its mean is the first metric.
        """
        metric, best, gradients, broken = self.metrics[0], Finding(), 0, []
        for rate in self.rates:
            looks, done = self._train(subject, draw, look, rate)
            gradients += done
            if done < self.steps:
                broken.append(f"{rate:g} (after {done} steps)")
            found = Finding.at_best(metric, looks)
            if not best.figures or found.figures[metric.name] > best.figures[metric.name]:
                best = found
        why = f"The loss was no longer finite at the rate {', '.join(broken)}." if broken else None
        return replace(best, gradients=gradients, broken=why, ids=asked)

    def _train(self, subject: Subject, draw: Draw, look: Look, rate: float) -> tuple[dict[int, np.ndarray], int]:
        """Looks by step, and the number of steps until the loss was not finite."""
        model = subject.build()
        weights = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
        looks = {0: look(model)}
        for step in range(1, self.steps + 1):
            loss = subject.recipe.sample_losses(model, draw(step - 1)).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            if step % self.every == 0 or step == self.steps:
                values = look(model)
                if not (torch.isfinite(loss) and np.isfinite(values).all()):
                    return looks, step - 1
                looks[step] = values
        return looks, self.steps


def sides(n: int, share: float, seed: int, together: int = 1) -> tuple[list[int], list[int]]:
    """Places of the forgotten rows that are shown, and of those that are asked for; both have one at least.

    Rows that stand ``together``, so many one after another, go to one side. A single row is a ``UserError``.

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


def drawn(places: Sequence[int], seed: int, number: int) -> list[int]:
    """The places of the batch of that number."""
    return [places[i] for i in batch_indices(len(places), BATCH, seed, "relearn", number).tolist()]


def stream(subject: Subject, split: str, places: Sequence[int], seed: int) -> Draw:
    """Batches of the rows at some places of a split, in an order that follows from the seed."""
    return lambda number: subject.batch(split, drawn(places, seed, number))
