"""When a run ends, and which of its weights are kept: the same for every method."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.losses import log_odds
from ofmu_pl.modules.goal import rise_of
from ofmu_pl.modules.likeness import Likeness
from ofmu_pl.modules.path import HARM_NATS, KEPT_NATS
from ofmu_pl.modules.reader import RowReader, Rows, means
from ofmu_pl.support.errors import UserError, check_range

AREAS = ("goal/auc", "goal/facts_auc")
"""Names of what tells forget from held-out rows: 1 before the first step, 0.5 at the goal, less beyond."""
LOOK_EVERY = 10
"""Outer iterations between two looks."""


class Watch:
    """Forget rows beside held-out rows, and what retain rows have lost, for methods that seek no goal themselves.

    Args:
        method: The method (``UnlearningModule``), before its first step.
        kept: Its retain rows' losses of then, (R,), where a run goes on; ``None``: they are measured.
    """

    def __init__(self, method: Any, kept: Tensor | None = None) -> None:
        self.data = method.run.data
        self.reader = RowReader(self.data, method.token_losses)
        self.likeness = Likeness(self.reader, _still_to_rise)
        self.retained = self.reader.some("retain")
        self.old = means(self.reader.losses("retain", self.retained)) if kept is None else kept

    def check(self) -> tuple[bool, dict[str, float]]:
        """Compare; forget rows that have gone past held-out rows are at their goal, too."""
        harm = rise_of(self.reader, self.retained, self.old)
        if self.data.never_seen is None:
            return False, {"goal/harm": harm}
        alike, seen = self.likeness.compare(self.reader.read_held_out())
        # Between two looks a fast method may go past held-out rows, where there is nothing left to wait for.
        past = [seen[name] < 0.5 for name in AREAS if name in seen]
        beyond = seen["goal/left"] < 0 if "goal/left" in seen else all(past)
        return (alike or beyond) and harm <= KEPT_NATS, {"goal/harm": harm, **seen}


def _still_to_rise(losses: Rows, rows: Sequence[int], held: Rows) -> float:
    """What forget rows still have to rise to held-out rows' mean loss, in log-odds."""
    return float(log_odds(means(held).mean()) - log_odds(means(losses).mean()))


class Ending:
    """Ends a run where it is to end, and keeps the best weights on the way.

    Args:
        stop_at: ``holdout``: end where forget rows can no longer be told from held-out rows, and retain rows are kept.
            Methods that seek no goal themselves may also end beyond held-out rows.
        max_harm: Mean rise of retain rows' losses, in nats, from which the run ends.
        keep: ``best``: the weights of the look at which forget rows were nearest to held-out rows, among those whose
            retain rows were harmed by at most ``max_harm`` (.3 nats where none is given).

    Attributes:
        watch: What compares, for methods that do not compare themselves.
        best: Whether the best look harmed too much; then its harm if so, else its distance from the goal.
        step: Number of the iteration of that look.
    """

    def __init__(self, stop_at: str | None, max_harm: float | None, keep: Literal["last", "best"]) -> None:
        if stop_at not in (None, "holdout") or keep not in ("last", "best"):
            raise UserError(
                f"There is no model.stop_at {stop_at} or model.keep {keep}: give holdout or null, and last or best."
            )
        check_range(0, above=True, max_harm=max_harm)
        self.stop_at, self.max_harm, self.keep = stop_at, max_harm, keep
        self.watch: Watch | None = None
        self.best = (True, float("inf"))
        self.step = 0
        self._weights: list[Tensor] = []
        self._old: Tensor | None = None

    @property
    def looks(self) -> bool:
        """Whether anything hangs on a comparison."""
        return self.stop_at is not None or self.judges_harm

    @property
    def judges_harm(self) -> bool:
        """Whether what retain rows have lost ends the run, or chooses the weights."""
        return self.max_harm is not None or self.keep == "best"

    def begin(self, method: Any) -> None:
        """Measure retain rows before the first step."""
        if self.keep == "best" and method.run.ranks.sharded:
            raise UserError("With shards no rank has all weights to keep: set model.keep last or trainer.strategy ddp.")
        data, needed = method.run.data, self.keep == "best" or (self.stop_at and not method.compares)
        if needed and data.never_seen is None:
            raise UserError(
                f"{data.why_no_never_seen}, and model.stop_at and model.keep need such rows: give some, or neither."
            )
        if self.looks and self.watch is None and not method.compares:
            with method.scoring():
                self.watch = Watch(method, self._old)

    def look(self, method: Any) -> dict[str, float]:
        """Compare; keep the weights if they are the best, and end the run where it is to end."""
        number = method.run.step
        found: tuple[bool, dict[str, float]] = method.reached()
        reached, seen = found
        if not seen or not self.looks:
            return seen
        ranks = method.run.ranks  # which end together, whatever rounding says on each
        reached, harm = bool(ranks.first(reached)), ranks.first(seen["goal/harm"])
        if self.keep == "best":
            self._keep(method, harm, seen)
        told = ", ".join(f"{name.removeprefix('goal/')} {value:.3g}" for name, value in seen.items())
        if reached and self.stop_at is not None:
            goal = f"its goal was reached: {_reached(seen)}"
            rank_zero_info(f"Stopping after {number} iterations, since {goal} ({told}).")
            method.run.stop(goal)
        elif self.max_harm is not None and harm > self.max_harm:
            rank_zero_info(f"Stopping after {number} iterations: retain rows lose more than model.max_harm: {told}.")
            method.run.stop("what must stay had lost as much as was allowed")
        return seen

    def settle(self, method: Any) -> None:
        """Take the best weights, before the model is measured and exported; the second call does nothing."""
        if not self._weights:
            return
        with torch.no_grad():
            for place, kept in zip(_places(method), self._weights, strict=True):
                place.copy_(kept)
        method.weights_changed()
        rank_zero_info(f"Kept: the weights after {self.step} iterations, the best by model.keep.")
        self._weights = []

    def state_dict(self) -> dict[str, Any]:
        """What a run that goes on cannot measure again."""
        if not self.looks:
            return {}
        old = self._old if self.watch is None else self.watch.old
        return {"old": old, "best": self.best, "step": self.step, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""
        if state:
            self._old, self.best, self.step, self._weights = (state[k] for k in ("old", "best", "step", "weights"))
            self.best = (bool(self.best[0]), float(self.best[1]))

    def _keep(self, method: Any, harm: float, seen: dict[str, float]) -> None:
        bound = HARM_NATS if self.max_harm is None else self.max_harm
        far = [abs(seen[name] - 0.5) for name in AREAS if name in seen]
        away = abs(seen["goal/left"]) if "goal/left" in seen else max(far, default=float("inf"))
        found = (harm > bound, harm if harm > bound else away)
        if found < self.best or not self._weights:
            self.best, self.step = found, method.run.step
            self._weights = [x.detach().to("cpu", copy=True) for x in _places(method)]


def _reached(seen: dict[str, float]) -> str:
    """What a goal that is reached says of forget rows, by what was compared."""
    if "goal/left" in seen:  # too few rows for an AUC, or none that are held out
        return "forget rows have the loss that they were to have"
    whose = "the facts in forget rows" if "goal/facts_auc" in seen else "forget rows"
    return f"by the loss {whose} are known no better than held-out ones"


def _places(method: Any) -> list[Tensor]:
    """Tensors that training moves: trainable parameters, and buffers such as running statistics."""
    return [*trainable(method.trained), *method.trained.buffers()]
