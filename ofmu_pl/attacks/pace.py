"""How long a model takes: each kind of work is timed once, before attacks that take much of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from ofmu_pl.attacks.asking import ask, drawn, question_rows
from ofmu_pl.attacks.cost import AttackCost
from ofmu_pl.attacks.subject import Subject

TIMED = 3
"""Number of gradients, and of passes, that are timed after a first one."""
QUESTIONS, TIMES, LENGTH = 32, 2, 64
"""Number of questions that are timed, of answers to each, and of tokens of an answer at most."""


class Pace:
    """How long a model takes for each kind of work; what nobody asks for is not timed.

    Args:
        subject: The model and its data.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.model = subject.build()
        self.taken: dict[str, float] = {}

    def seconds(self, cost: AttackCost) -> float:
        """About how long work takes.

        Args:
            cost: The work.

        Raises:
            UserError: Tokens are asked for, and the rows are no questions.
        """
        total = 0.0
        if cost.gradients:
            rows = cost.batch_size
            total += cost.gradients * self._once(f"gradient of {rows}", lambda: self._typical(self._gradient, rows))
        if cost.passes:
            total += cost.passes * self._once("pass", lambda: self._typical(self._pass, self.subject.data.batch_size))
        if cost.tokens:
            total += cost.tokens * self._once("token", self._token)
        return total

    def _once(self, what: str, timed: Callable[[], float]) -> float:
        if what not in self.taken:
            self.taken[what] = timed()
        return self.taken[what]

    def _typical(self, work: Callable[[list[int]], object], rows: int) -> float:
        """Median time of some work on so many forgotten rows; the first time does not count."""
        n = len(self.subject.data.splits["forget"])
        places = [i % n for i in range(rows)]
        return median([self._timed(lambda: work(places)) for _ in range(1 + TIMED)][1:])

    def _timed(self, work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        if self.subject.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter() - started

    def _gradient(self, places: list[int]) -> None:
        self.subject.recipe.sample_losses(self.model, self.subject.batch("forget", places)).mean().backward()
        self.model.zero_grad()

    def _pass(self, places: list[int]) -> None:
        with torch.no_grad():
            self.subject.recipe.sample_losses(self.model, self.subject.batch("forget", places))

    def _token(self) -> float:
        """Time of a token that answers may have: they end where they end, as under attack."""
        data = self.subject.data
        prompts = [data.encoder.row_prompt(row) for row in question_rows(self.subject, "forget", QUESTIONS)]
        choose = drawn(torch.Generator(self.subject.device).manual_seed(0))
        taken = self._timed(lambda: ask(self.model, data.encoder, prompts, LENGTH, choose, TIMES))
        return taken / (len(prompts) * TIMES * LENGTH)
