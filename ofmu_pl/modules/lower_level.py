"""Parts of OFMU for its lower level: the loss L_f that the ascent raises, and how far."""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from ofmu_pl.core.derivatives import Loss
from ofmu_pl.losses import ceiling, nll_and_kl, sample_mean, token_nll
from ofmu_pl.modules.base import Checkpoint, UnlearningModule
from ofmu_pl.modules.goal import Goal
from ofmu_pl.modules.guess import Guess
from ofmu_pl.modules.path import Path
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError, check_range


class LowerLevel(ABC):
    """What the ascent raises; a part of your own says it in ``values``, the rest is here.

    The printed penalty is that of the plain loss, whatever the ascent raises. Where a value has a kink, as by a hard
    bound, differences of it are not checked.

    Args:
        ngram_weight: Weight of ``KL(q || p)``, the mean over an answer's tokens, which is taken off: q is what someone
            would answer who knows the retain rows alone, by an n-gram model of these (``modules.guess``). It needs
            held-out rows; 0: no pull.

    Attributes:
        guess: The n-gram model's guesses, once the run has begun; ``None``: there is no pull towards it.
    """

    seeks_goal: bool = False
    """Whether tokens are to end at the losses of held-out tokens."""
    goal: Goal | None = None
    """Where forget tokens are to end, once the run has begun; ``None``: nowhere."""

    def __init__(self, ngram_weight: float = 0.0) -> None:
        check_range(0, ngram_weight=ngram_weight)
        self.ngram_weight = ngram_weight
        self.guess: Guess | None = None
        self._kept: Checkpoint = {}

    @abstractmethod
    def values(self, nll: Tensor, targets: Tensor, ids: Tensor) -> Tensor:
        """Values of a micro-batch's rows, (b,), whose mean is L_f.

        Args:
            nll: Losses of their tokens, (b, S), in nats; 0 where there is no target.
            targets: The tokens, (b, S); -100 where there is no target.
            ids: Places of the rows in the forget split, (b,).
        """

    @property
    def bounded(self) -> bool:
        """Whether there is an end to what the ascent can raise."""
        return True

    @property
    def path(self) -> Path | None:
        """The way to the goal, once the run has begun, if there is one."""
        return None if self.goal is None else self.goal.path

    def begin(self, method: UnlearningModule, iterations: int) -> None:
        """Measure what the loss needs of the model that is to forget, once.

        Args:
            method: The method that ascends, and descends by the last batch of each iteration.
            iterations: Outer iterations in all; -1 where no number ends the run.
        """
        self.method = method
        if self.ngram_weight:
            self._fit_guess(round(math.exp(method.recipe.uniform_loss(method.trained))))

    def loss(self, batch: Batch) -> Loss:
        """L_f of a forget batch, as terms."""
        return self.method.mean(batch, self._rows)

    def reached(self) -> tuple[bool, dict[str, float]]:
        """Whether rows are where they are to end, and what was seen."""
        return False, {}

    def measured(self, scalars: dict[str, float], retain: Tensor, loss_r: float) -> dict[str, float]:
        """What an iteration measured, by the names that the part logs; ``retain`` are the outer step's retain rows."""
        return scalars

    def state_dict(self) -> Checkpoint:
        """What a resumed run cannot measure again."""
        return {} if self.guess is None else {"temperature": self.guess.temperature}

    def load_state_dict(self, state: Checkpoint) -> None:
        """Restore what ``state_dict`` gave, before or after ``begin``, which finds the same temperature."""
        self._kept = state

    def _fit_guess(self, vocabulary: int) -> None:
        """Make the n-gram model, for which there must be text and held-out rows."""
        data = self.method.run.data
        if data.modality != "text":
            raise UserError("Images are not answered word by word: set model.lower.ngram_weight 0.")
        if data.never_seen is None:
            raise UserError(
                f"{data.why_no_never_seen}, and model.lower.ngram_weight fits a guess to such rows: give some or set "
                "it to 0."
            )
        self.guess = Guess(data, vocabulary, self._kept.get("temperature", 1.0))
        if "temperature" not in self._kept:
            with self.method.scoring(), torch.no_grad():
                self.guess.sharpen(self.method.read)

    def _rows(self, batch: Batch) -> Tensor:
        """(b,) values of a micro-batch's samples, whose mean is L_f."""
        said, targets = self.method.predict(batch)
        if self.guess is None:
            return self.values(said.values(token_nll, targets), targets, batch["ids"])
        both = said.values(nll_and_kl, targets, self.guess.predict(batch["ids"], targets))
        return self.values(both[..., 0], targets, batch["ids"]) - self.ngram_weight * sample_mean(both[..., 1], targets)


class BoundedLoss(LowerLevel):
    """The forget loss, bent to a constant where a row has nothing left to forget.

    Args:
        bound: Value at which a row's loss is bent to a constant, in nats; ``uniform``: the loss ln V of a guess;
            ``null``: as printed (then L_f grows without bound).
        ngram_weight: See ``LowerLevel``.

    Example:
        >>> BoundedLoss(bound=None).bounded
        False
    """

    def __init__(self, bound: float | Literal["uniform"] | None = "uniform", ngram_weight: float = 0.0) -> None:
        super().__init__(ngram_weight)
        if isinstance(bound, str) and bound != "uniform":
            raise UserError(f"There is no bound {bound}: give uniform, a number of nats, or null.")
        self.level = None if isinstance(bound, str) else bound
        check_range(0, above=True, bound=self.level)
        self.bound = bound

    @property
    def bounded(self) -> bool:
        """Whether losses are bent."""
        return self.bound is not None

    def begin(self, method: UnlearningModule, iterations: int) -> None:
        """Take the loss of a guess among the network's tokens or classes."""
        super().begin(method, iterations)
        if self.bound == "uniform":
            self.level = method.recipe.uniform_loss(method.trained)

    def loss(self, batch: Batch) -> Loss:
        """L_f of a forget batch, as terms, also of networks whose logits are not those of tokens."""
        if self.guess is not None:
            return super().loss(batch)
        return self.method.loss(batch, lambda losses: ceiling(losses, self.level))

    def values(self, nll: Tensor, targets: Tensor, ids: Tensor) -> Tensor:
        """Rows' mean losses below the bound."""
        return ceiling(sample_mean(nll, targets), self.level)


class HeldOutLevels(LowerLevel):
    """Minus the distance of forget rows from held-out rows' losses, along a path (``modules.goal``).

    Each token rises to the loss of a held-out token of its kind, on a path of 15 % of the run; with ``call_back`` of
    60 %, and of at most 100 iterations.

    Args:
        call_back: Whether tokens beyond their level are called back; else the level is a ceiling.
        ngram_weight: See ``LowerLevel``.
    """

    seeks_goal = True

    def __init__(self, call_back: bool = False, ngram_weight: float = 0.0) -> None:
        super().__init__(ngram_weight)
        self.call_back = call_back

    def begin(self, method: UnlearningModule, iterations: int) -> None:
        """Make the goal, from a checkpoint where there is one."""
        super().begin(method, iterations)
        data, uniform = method.run.data, method.recipe.uniform_loss(method.trained)
        expected = self.guess.losses if self.guess is not None and self.guess.can_rank else None
        ceilings = not self.call_back
        self.goal = Goal(data, method.token_losses, iterations, uniform, ceilings, expected)
        if "goal" in self._kept:
            self.goal.load_state_dict(self._kept["goal"])
            return
        if method.run.checks_itself:  # else rows are made up
            self.goal.warn()
        with method.scoring():
            each = method.num_batches
            self.goal.begin(range(each - 1, iterations * each, each))

    def values(self, nll: Tensor, targets: Tensor, ids: Tensor) -> Tensor:
        """Minus rows' distances from their place on the path."""
        assert self.goal is not None, "begin has not run"
        return self.goal.rows(nll, targets, ids)

    def reached(self) -> tuple[bool, dict[str, float]]:
        """Compare forget with held-out rows."""
        assert self.goal is not None, "begin has not run"
        with self.method.scoring():
            reached, seen = self.goal.check()
            if self.method.ending.judges_harm:  # not by a mean that lags
                seen["goal/harm"] = self.goal.measured_harm()
        return reached, seen

    def measured(self, scalars: dict[str, float], retain: Tensor, loss_r: float) -> dict[str, float]:
        """Add how far the retain loss is above its old value, and go on along the path, or wait."""
        assert self.goal is not None, "begin has not run"
        rise = self.goal.rise(retain, loss_r)
        self.goal.path.advance(rise)
        raised = {"inner/distance": -scalars["inner/L_f"], "retain_rise": rise}
        return {name: value for name, value in scalars.items() if name != "inner/L_f"} | raised

    def state_dict(self) -> Checkpoint:
        """What a resumed run cannot measure again."""
        state: Checkpoint = {} if self.goal is None else {"goal": self.goal.state_dict()}
        return state | super().state_dict()

    def load_state_dict(self, state: Checkpoint) -> None:
        """Restore what ``state_dict`` gave."""
        super().load_state_dict(state)
        if self.goal is not None and "goal" in state:
            self.goal.load_state_dict(state["goal"])
