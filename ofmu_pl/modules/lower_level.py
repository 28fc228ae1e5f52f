"""The lower level's loss L_f, which the ascent raises, and what bounds it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from ofmu_pl.core.derivatives import Engine, Loss, Term
from ofmu_pl.losses import ceiling, kl, sample_mean, token_nll
from ofmu_pl.modules.goal import Goal
from ofmu_pl.modules.guess import Guess
from ofmu_pl.modules.method import Method
from ofmu_pl.modules.question_noise import with_noise
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.training.parallel import reshard


class LowerLevel:
    """L_f of a forget batch: its bent loss, how near it is to a goal, or another method's forget term.

    Args:
        bound: Value at which losses are bent to a constant, in nats; ``uniform``: the loss of a guess; ``holdout``:
            each row's loss rises to a never-seen row's, and is not called back (``modules.goal``); ``None``: none.
        by: What is bent, each ``sample``'s mean loss or each ``token``'s loss.
        noise: Probability with which a token of a question is replaced by a random one.
        objective: A first-order method whose forget term, with its sign turned, takes the place of the loss.
        ngram_weight: How much of ``KL(q || p)`` of each token of an answer is taken off, where q is what someone would
            answer who knows the retain rows alone (``modules.guess``).
        seeks_goal: Whether rows are to end at never-seen rows' losses; unless ``bound`` is ``holdout``, rows beyond
            are called back.

    Attributes:
        level: The bound in nats.
        goal: Where forget rows are to end, once the run has begun; ``None``: nowhere.
        guess: The n-gram model's guesses, once the run has begun; ``None``: there is no pull towards it.
    """

    def __init__(
        self,
        bound: float | Literal["uniform", "holdout"] | None,
        by: Literal["sample", "token"],
        noise: float,
        objective: TwoTerms | None,
        ngram_weight: float,
        *,
        seeks_goal: bool,
    ) -> None:
        level = None if isinstance(bound, str) else bound
        seeks_goal = seeks_goal or bound == "holdout"
        check_range(0, above=True, forget_ceiling=level)
        check_range(0, 1, question_noise=noise)
        check_range(0, ngram_weight=ngram_weight)
        if bound == "holdout" and by == "token":
            raise UserError("forget_ceiling=holdout is a bound of rows' mean losses: set --model.ceiling_by sample.")
        if objective is not None and seeks_goal:
            raise UserError(
                "rates=auto, stop_at=holdout and forget_ceiling=holdout set the goal of the loss itself, which another "
                "method's forget term takes the place of: leave out --model.objective, or the other three."
            )
        if objective is not None and len(objective.per_item_reference) > 1:
            raise UserError(
                f"{type(objective).__name__} forgets by other answers, which an ascent has none of: choose another "
                "--model.objective, such as NPO."
            )
        if objective is not None and ngram_weight:
            raise UserError("Another method's forget term takes no pull beside it: leave out --model.ngram_weight.")
        self.bound, self.by, self.noise, self.objective, self.seeks_goal = bound, by, noise, objective, seeks_goal
        self.ngram_weight = ngram_weight
        self.level: float | None = level
        self.goal: Goal | None = None
        self.guess: Guess | None = None
        self._kept: dict[str, Any] = {}

    def begin(self, method: Method, engine: Engine, outer_batches: range) -> None:
        """Measure what the loss needs of the model that is to forget, once.

        Args:
            method: The method that ascends.
            engine: Its engine, which counts the passes of an objective's frozen model, too.
            outer_batches: Numbers of the retain stream's batches that the descents draw.
        """
        self.method, self.engine = method, engine
        guess = method.recipe.uniform_loss(method.trained)
        if self.bound == "uniform":
            self.level = guess
        if self.noise and method.run.data.modality != "text":
            raise UserError("Images come without a question: set --model.question_noise 0.")
        if self.objective is not None:
            self._share_network(self.objective)
        if self.ngram_weight:
            self._fit_guess()
        if self.seeks_goal and method.device.type != "meta":  # a plan has no losses
            run, one_sided = method.run, self.bound == "holdout"
            expected = self.guess.losses if self.guess is not None and self.guess.can_rank else None
            self.goal = Goal(run.data, self._token_losses, run.steps, guess, one_sided=one_sided, expected=expected)
            if "goal" in self._kept:
                self.goal.load_state_dict(self._kept["goal"])
            else:
                with self._scoring():
                    self.goal.begin(outer_batches)

    def loss(self, batch: Batch) -> Loss:
        """L_f of a forget batch, as terms."""
        method, objective = self.method, self.objective
        if objective is not None:
            terms = method.mean(batch, lambda part: -objective.forget_losses(part))
            if objective.frozen_in_forget_term:
                return [partial(self._counted, term, 1 / 3 / len(terms)) for term in terms]
            return terms
        if self.goal is not None or self.ngram_weight or self.by == "token":
            return method.mean(batch, self._rows)
        return method.loss(batch, lambda losses: ceiling(losses, self.level))

    def _counted(self, term: Term, cost: float) -> Tensor:
        """Evaluate a term that runs the frozen model, too."""
        self.engine.gradient_evaluations += cost
        return term()

    def noised(self, batches: list[Batch], step: int) -> list[Batch]:
        """An iteration's forget batches with noise on their questions, if there is to be any; alike on every rank."""
        if not self.noise:
            return batches
        data, vocabulary = self.method.run.data, self._vocabulary
        spared = data.tokenizer.all_special_ids
        first = step * len(batches)
        return [with_noise(b, self.noise, vocabulary, spared, (data.seed, first + t)) for t, b in enumerate(batches)]

    def reached(self, step: int) -> tuple[bool, dict[str, float]]:
        """Whether rows are where they are to end, and what was seen; no look is due in most iterations."""
        if self.goal is None:
            return False, {}
        with self._scoring():
            return self.goal.check(step)

    @contextmanager
    def _scoring(self) -> Iterator[None]:
        """A context for ranks with shards: the exact engine's whole copy is made before, all else is cut after."""
        if self.method.exact:
            self.method.whole_network()
        yield
        reshard(self.method.trained)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run cannot measure again."""
        state: dict[str, Any] = {} if self.goal is None else {"goal": self.goal.state_dict()}
        if self.guess is not None:
            state["temperature"] = self.guess.temperature
        return state if self.objective is None else state | {"objective": self.objective.reference_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave, before or after ``begin``."""
        self._kept = state
        if self.goal is not None and "goal" in state:
            self.goal.load_state_dict(state["goal"])
        if self.guess is not None and "temperature" in state:
            self.guess.temperature = state["temperature"]
        if self.objective is not None and "objective" in state:
            self.objective.load_reference_state(state["objective"])

    def _share_network(self, objective: TwoTerms) -> None:
        """Let a method that takes no step of its own use the network that is trained, and what belongs to it."""
        method = self.method
        objective.run, objective.recipe = method.run, method.recipe
        objective.network, objective.replica = method.network, method.replica
        objective.to(method.device)
        objective.take_reference(frozen=objective.frozen_in_forget_term)

    def _fit_guess(self) -> None:
        """Make the n-gram model, unless the run is only planned.

        Raises:
            UserError: The data are images, or there are no never-seen rows.
        """
        method = self.method
        data = method.run.data
        if data.modality != "text":
            raise UserError("Images are not answered word by word: set --model.ngram_weight 0.")
        if method.device.type == "meta":
            return
        if data.never_seen is None:
            raise UserError(
                f"{data.why_no_never_seen}, and ngram_weight fits its guess to such rows: give some, or set "
                "--model.ngram_weight 0."
            )
        self.guess = Guess(data, self._vocabulary)
        if "temperature" in self._kept:
            self.guess.temperature = self._kept["temperature"]
        else:
            with self._scoring(), torch.no_grad():
                self.guess.sharpen(self._logits)

    def _rows(self, batch: Batch) -> Tensor:
        """(b,) values of a micro-batch's samples, whose mean is L_f."""
        logits, targets = self._logits(batch)
        nll = token_nll(logits, targets)
        if self.goal is not None:
            values = self.goal.rows(nll, targets, batch["ids"])
        elif self.by == "token":
            values = sample_mean(ceiling(nll, self.level), targets)
        else:
            values = ceiling(sample_mean(nll, targets), self.level)
        if self.ngram_weight:
            # A run that is only planned has no guess.
            guess = torch.empty_like(logits) if self.guess is None else self.guess.logits(batch["ids"], targets)
            values = values - self.ngram_weight * kl(logits, targets, guess)
        return values

    def _token_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, targets = self._logits(batch)
        return token_nll(logits, targets), targets

    def _logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        method = self.method
        with method.run.forward_context():
            return method.recipe.logits(method.trained, {name: x.to(method.device) for name, x in batch.items()})

    @property
    def _vocabulary(self) -> int:
        """Number of tokens that the network tells apart."""
        return round(math.exp(self.method.recipe.uniform_loss(self.method.trained)))
