"""The lower level's loss L_f, which the ascent raises, and what bounds it."""

import math
from typing import Literal

import torch
from torch import Tensor

from ofmu_pl.core.derivatives import Loss
from ofmu_pl.data.guessable import kinds_in
from ofmu_pl.losses import ceiling, kl, sample_mean, token_nll
from ofmu_pl.modules.base import Checkpoint, UnlearningModule
from ofmu_pl.modules.goal import Goal
from ofmu_pl.modules.guess import Guess
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError, check_range


class LowerLevel:
    """L_f of a forget batch: its bent loss, or how near its tokens are to a goal.

    Args:
        bound: Value at which rows' losses are bent to a constant, in nats; ``uniform``: the loss of a guess;
            ``holdout``: each token's loss rises to a held-out token's, and is left there (``modules.goal``); ``None``:
            none.
        ngram_weight: How much of ``KL(q || p)`` of each token of an answer is taken off, where q is what someone would
            answer who knows the retain rows alone (``modules.guess``).
        seeks_goal: Whether tokens are to end at held-out tokens' losses; unless ``bound`` is ``holdout``, tokens beyond
            are called back.

    Attributes:
        level: The bound in nats.
        goal: Where forget tokens are to end, once the run has begun; ``None``: nowhere.
        guess: The n-gram model's guesses, once the run has begun; ``None``: there is no pull towards it.
    """

    def __init__(
        self, bound: float | Literal["uniform", "holdout"] | None, ngram_weight: float, *, seeks_goal: bool
    ) -> None:
        self.level = None if isinstance(bound, str) else bound
        check_range(0, above=True, forget_ceiling=self.level)
        check_range(0, ngram_weight=ngram_weight)
        self.bound, self.ngram_weight = bound, ngram_weight
        self.seeks_goal = seeks_goal or bound == "holdout"
        self.goal: Goal | None = None
        self.guess: Guess | None = None
        self._kept: Checkpoint = {}

    def begin(self, method: UnlearningModule, iterations: int) -> None:
        """Measure what the loss needs of the model that is to forget, once.

        Args:
            method: The method that ascends, and descends by the last batch of each iteration.
            iterations: Outer iterations in all; -1 where no number ends the run.
        """
        self.method = method
        uniform = method.recipe.uniform_loss(method.trained)
        if self.bound == "uniform":
            self.level = uniform
        if self.ngram_weight:
            self._fit_guess(round(math.exp(uniform)))
        if self.seeks_goal:
            self._set_goal(uniform, iterations)

    def loss(self, batch: Batch) -> Loss:
        """L_f of a forget batch, as terms."""
        if self.goal is not None or self.ngram_weight:
            return self.method.mean(batch, self._rows)
        return self.method.loss(batch, lambda losses: ceiling(losses, self.level))

    def reached(self, step: int) -> tuple[bool, dict[str, float]]:
        """Whether rows are where they are to end, and what was seen; no look is due in most iterations."""
        if self.goal is None:
            return False, {}
        with self.method.scoring():
            reached, seen = self.goal.check(step)
            if seen and self.method.ending.judges_harm:  # not by a mean that lags
                seen["goal/harm"] = self.goal.measured_harm()
        return reached, seen

    def state_dict(self) -> Checkpoint:
        """What a resumed run cannot measure again."""
        state: Checkpoint = {} if self.goal is None else {"goal": self.goal.state_dict()}
        return state if self.guess is None else state | {"temperature": self.guess.temperature}

    def load_state_dict(self, state: Checkpoint) -> None:
        """Restore what ``state_dict`` gave, before or after ``begin``, which finds the same temperature."""
        self._kept = state
        if self.goal is not None and "goal" in state:
            self.goal.load_state_dict(state["goal"])

    def _set_goal(self, uniform: float, iterations: int) -> None:
        """Make the goal, from a checkpoint where there is one."""
        data, one_sided = self.method.run.data, self.bound == "holdout"
        expected = self.guess.losses if self.guess is not None and self.guess.can_rank else None
        self.goal = Goal(data, self.method.token_losses, iterations, uniform, one_sided, kinds_in(data), expected)
        if "goal" in self._kept:
            self.goal.load_state_dict(self._kept["goal"])
        else:
            with self.method.scoring():
                each = self.method.num_batches
                self.goal.begin(range(each - 1, iterations * each, each))

    def _fit_guess(self, vocabulary: int) -> None:
        """Make the n-gram model, for which there must be text and held-out rows."""
        data = self.method.run.data
        if data.modality != "text":
            raise UserError("Images are not answered word by word: set model.ngram_weight 0.")
        if data.never_seen is None:
            raise UserError(
                f"{data.why_no_never_seen}, and model.ngram_weight fits a guess to such rows: give some or set it to 0."
            )
        self.guess = Guess(data, vocabulary, self._kept.get("temperature", 1.0))
        if "temperature" not in self._kept:
            with self.method.scoring(), torch.no_grad():
                self.guess.sharpen(self.method.read)

    def _rows(self, batch: Batch) -> Tensor:
        """(b,) values of a micro-batch's samples, whose mean is L_f."""
        logits, targets = self.method.logits(batch)
        nll = token_nll(logits, targets)
        if self.goal is None:
            values = ceiling(sample_mean(nll, targets), self.level)
        else:
            values = self.goal.rows(nll, targets, batch["ids"])
        if self.guess is not None:
            values = values - self.ngram_weight * kl(logits, targets, self.guess.logits(batch["ids"], targets))
        return values
