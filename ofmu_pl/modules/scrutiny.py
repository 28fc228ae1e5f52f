"""Checks of whether OFMU's engine gives right derivatives of the network at hand."""

import torch
from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.core.calls import calls
from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.finite_difference import STEPS, FiniteDifference
from ofmu_pl.core.preflight import NoDerivativeError, check_calls
from ofmu_pl.core.steps import settle
from ofmu_pl.core.vectors import zeros_like
from ofmu_pl.modules.base import Checkpoint, UnlearningModule
from ofmu_pl.networks.base import Batch


class Scrutiny:
    """Checks an engine's numbers before they are used, and remembers what it has found.

    Once, and again after a resume, it refuses what the engine cannot differentiate (``core.calls``), or warns. In
    iterations 0, 1, 4, 16, 64 ... of those with higher derivatives it sets steps at which differences agree on the
    batches of the outer step (``core.steps``). A part that no steps make agree to .2 is left out until the next check.

    Args:
        beta: Weight of the similarity.
        floor: Floor of norms (``core.safeguards``).
        takes_parts: Whether any iteration takes more than gradients, which are right on every network.
        optional: Whether a run goes on without the parts that the engine cannot give.

    Attributes:
        examined: Whether the engine has been found fit for the network.
        order: The highest order of derivatives that the engine gives now: 1 (gradients), 2 (grad Phi) or 3.
        reached: The highest order that any iteration with higher derivatives had.
        used: Iterations so far that were to use similarity or penalty.
    """

    def __init__(self, beta: float, floor: float, *, takes_parts: bool = True, optional: bool = False) -> None:
        self.beta, self.floor, self.takes_parts, self.optional = beta, floor, takes_parts, optional
        self.order, self.reached = 3, 1
        self.used = 0
        self._steps: tuple[float, float] | None = None
        self.examined = False
        self._differentiable = True

    def examine(self, method: UnlearningModule, engine: Engine, batch: Batch) -> None:
        """Find out whether the engine can differentiate the network, by the loss of two forget rows of a batch.

        How precisely the network computes gives finite differences their steps.

        Raises:
            UserError: The network calls what the engine cannot differentiate.
        """
        rows, before = _first(method, batch, 2), engine.gradient_evaluations
        forget = method.loss(rows)
        seen = calls(method.trained, lambda: engine.expand(forget, order=1))
        try:
            check_calls(seen, first_order=engine.first_order)
            if self.takes_parts and not engine.first_order and method.run.checks_itself:
                _require_third(engine, forget)
        except NoDerivativeError as error:
            if self.takes_parts and not self.optional:
                raise
            if self.takes_parts:
                self.order, self._differentiable = 1, False
                rank_zero_warn(f"{error} Until then the run goes on without similarity and penalty.")
        if isinstance(engine, FiniteDifference):
            if seen.narrowed and engine.parameters[0].dtype == torch.float64:
                engine.default_steps = STEPS[torch.float32, engine.scheme]  # forward passes compute in it
            engine.set_steps(*(self._steps or engine.default_steps))
        self.examined = True
        if method.run.checks_itself and method.run.step == 1:  # a resumed run has counted it
            method.charge(engine.gradient_evaluations - before, len(next(iter(rows.values()))))
        engine.gradient_evaluations = before

    def look(
        self, method: UnlearningModule, engine: Engine, batch: dict[str, list[Batch]], *, penalised: bool
    ) -> dict[str, float]:
        """Make the checks that are due before an outer iteration which uses the similarity, or Hess(Phi) grad Phi.

        Returns:
            Scalars to log: the disagreement of two steps of differences.
        """
        if not method.run.checks_itself or not self._differentiable:
            return {}
        scalars: dict[str, float] = {}
        if isinstance(engine, FiniteDifference) and _is_looked_at(self.used):
            pair = method.loss(batch["forget"][-1]), method.loss(batch["retain"][-1])
            scalars = self._settle(engine, *pair, penalised=penalised)
        self.used += 1
        self.reached = max(self.reached, self.order)
        return scalars

    def state_dict(self) -> Checkpoint:
        """The findings, for a checkpoint."""
        return {"order": self.order, "steps": self._steps, "whole": self.used, "reached": self.reached}

    def load_state_dict(self, state: Checkpoint) -> None:
        """Restore what ``state_dict`` gave."""
        self.order, self.reached = state["order"], state["reached"]
        self._steps, self.used = state["steps"], state["whole"]
        self.examined = False  # which gives the engine its steps

    def _settle(self, engine: FiniteDifference, forget: Loss, retain: Loss, *, penalised: bool) -> dict[str, float]:
        """Set steps at which differences agree, and leave out for now what no steps make agree."""
        found = settle(engine, forget, retain, self.beta, self.floor, penalised=penalised)
        if found.order < self.order:
            what, remedy, by = "the similarity and the penalty", "model.beta 0", found.decorrelation
            if found.order == 2:
                what, remedy, by = "the penalty", "model.upper NoPenalty", found.penalty
            rank_zero_warn(
                f"Finite differences leave only noise of {what} here (at best two steps disagree by {by:.0%}), so the "
                f"run goes on without {what} until two agree: set model.engine autograd, or {remedy}."
            )
        self.order, self._steps = found.order, (engine.step, engine.field_step)
        return {"disagreement/decorrelation": found.decorrelation, "disagreement/penalty": found.penalty}


def _require_third(engine: Engine, loss: Loss) -> None:
    """Refuse a loss that torch does not differentiate three times: it lacks the derivatives of some operators."""
    found = engine.expand(loss, order=3)
    u = [(1.0, found.gradient)]
    try:
        found.add_hvp(zeros_like(engine.parameters), 1.0, u)
        found.third(u, found.gradient, u)
    except RuntimeError as error:
        if "is not implemented" not in str(error):
            raise
        raise NoDerivativeError(
            f"Torch cannot differentiate this network three times ({error}): set model.beta 0, model.upper NoPenalty."
        ) from error


def _first(method: UnlearningModule, batch: Batch, samples: int) -> Batch:
    """The first samples of a batch, at least one per rank, as all ranks decide the same: few rows are repeated."""
    rows, ranks = len(next(iter(batch.values()))), method.run.ranks.size
    places = torch.arange(max(min(samples, rows), ranks)) % rows
    return {name: x[places] for name, x in batch.items()}


def _is_looked_at(used: int) -> bool:
    """Whether differences are checked after so many iterations that used them: 0 and the powers of 4."""
    return used == 0 or (used.bit_count() == 1 and used.bit_length() % 2 == 1)
