"""Parts of OFMU for its upper level: what is added to grad L_r, and in which iterations."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.core.algorithm import OuterIteration
from ofmu_pl.core.derivatives import Engine
from ofmu_pl.core.inner import Step
from ofmu_pl.core.penalty import Penalty
from ofmu_pl.core.safeguards import Safeguards
from ofmu_pl.core.slope import flatten
from ofmu_pl.core.variants import Loops, Pairs
from ofmu_pl.modules.path import Path
from ofmu_pl.support.errors import check_range


@dataclass(frozen=True)
class Given:
    """What an outer iteration has.

    Attributes:
        engine: Differentiates the losses and holds the parameters.
        pairs: (L_f, L_r) on T + 1 fresh pairs of batches; the last L_f is the plain loss.
        loops: The order of the two loops.
        lr: eta_in of plain ascent steps.
        step: Takes the ascent steps; ``None``: plain ones.
        safeguards: Bounds.
        beta: Weight of the similarity in this iteration; 0: it does not act.
        penalised: Whether the penalty acts in this iteration.
    """

    engine: Engine
    pairs: Pairs
    loops: Loops
    lr: float
    step: Step | None
    safeguards: Safeguards
    beta: float
    penalised: bool


class UpperLevel(ABC):
    """What an outer iteration descends along beside grad L_r; a part of your own says it in ``iterate``.

    Args:
        every: One of so many iterations is of second order (1: the paper): it uses similarity and penalty. The others
            ascend on L_f and descend on L_r alone, at T + 1 gradients.
        start: Share of the run from which they use them (0: the paper). Before, they only measure: until something is
            forgotten, the penalty pulls back to the minimum of L_f where the run begins.
    """

    rho: float = 0.0
    """The penalty's weight of now; 0: there is none."""
    similar_alone: bool = True
    """Whether the similarity acts in ascents, too, and so without the penalty."""
    moves_first: bool = False
    """Whether an iteration may begin with a step of the part's own."""
    needs_goal: bool = False
    """Whether the part goes by the lower level's path."""
    optional: bool = False
    """Whether a run goes on, with a warning, without what the engine cannot give: nobody chose the engine."""

    def __init__(self, every: int = 1, start: float = 0.0) -> None:
        check_range(1, every=every)
        check_range(0, 1, start=start)
        self.every, self.start = every, start

    @abstractmethod
    def iterate(self, given: Given, *, due: bool) -> tuple[OuterIteration, dict[str, float]]:
        """Run the algorithm; ``due``: in an iteration of second order. Returns what was measured by the part, too."""

    def within(self, safeguards: Safeguards) -> Safeguards:
        """The bounds as the part needs them, of those that were given."""
        return safeguards

    def begin(self, iterations: int, beta: float) -> None:
        """Warn of a run of so many iterations (-1: no number ends it) in which similarity and penalty never act."""
        last = (iterations - 1) // self.every * self.every  # of second order; below 0 where no number ends the run
        if (beta > 0 or self.rho > 0) and 0 <= last < self.start * iterations:
            rank_zero_warn(
                f"Similarity and penalty act in none of the run's {iterations} iterations: lower model.upper.every "
                f"({self.every}) or model.upper.start ({self.start})."
            )

    def acts(self, share: float, path: Path | None) -> bool:
        """Whether similarity and penalty act, after a ``share`` of the run."""
        return share >= self.start

    def stays(self, path: Path | None) -> bool:
        """Whether the run must go on for the penalty, though forget rows are where they are to end."""
        return False

    def state_dict(self) -> dict[str, float]:
        """What a resumed run goes on with."""
        return {}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore what ``state_dict`` gave."""
        assert not state, f"{type(self).__name__} has no state"


class NoPenalty(UpperLevel):
    """Nothing is added to grad L_r; the similarity still acts in ascents where ``model.beta`` is above 0.

    Args:
        every: See ``UpperLevel``.
        start: See ``UpperLevel``.
    """

    def iterate(self, given: Given, *, due: bool) -> tuple[OuterIteration, dict[str, float]]:
        """Ascend on Phi, in iterations of second order; else on L_f."""
        return _iterate(given, 0.0, due=due), {}


class PrintedPenalty(UpperLevel):
    """The paper's penalty: ``2 rho_k Hess(Phi) grad Phi``, rho_{k+1} = min(gamma rho_k, rho_max).

    An iteration's penalty counts for all iterations that it stands for: rho and the clip are multiplied by ``every``.

    Args:
        rho_0: First penalty parameter (paper: 0.3); 0 switches the penalty off.
        gamma: Growth of rho an outer iteration (paper: between 1.5 and 2).
        every: See ``UpperLevel``.
        start: See ``UpperLevel``.

    Example:
        >>> PrintedPenalty(rho_0=0.25, gamma=2).rho
        0.25
    """

    def __init__(self, rho_0: float = 0.3, gamma: float = 1.5, every: int = 1, start: float = 0.0) -> None:
        super().__init__(every, start)
        self.schedule = Penalty(rho_0, gamma)

    @property
    def rho(self) -> float:  # type: ignore[override]
        """rho_k."""
        return self.schedule.rho

    def within(self, safeguards: Safeguards) -> Safeguards:
        """Take the cap of rho, and give the penalty's clip for each iteration that it counts for."""
        self.schedule = Penalty(self.schedule.rho, self.schedule.gamma, safeguards.rho_max)
        clip = safeguards.penalty_clip
        return replace(safeguards, penalty_clip=None if clip is None else self.every * clip)

    def iterate(self, given: Given, *, due: bool) -> tuple[OuterIteration, dict[str, float]]:
        """Algorithm 1, in iterations of second order; else first order. Then rho grows."""
        found = _iterate(given, self.every * self.rho if given.penalised else 0.0, due=due)
        self.schedule.update()
        return found, {}

    def state_dict(self) -> dict[str, float]:
        """rho_k."""
        return {"rho": self.schedule.rho}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on with it."""
        self.schedule.rho = state["rho"]


class FlatteningStep(UpperLevel):
    """A plain step before the ascents lowers |grad Phi| by a share (``core.slope``); both loops are of first order.

    No learning rate scales it, so it goes with steps that have none. The similarity acts in Phi of this step alone. The
    step pauses while retain rows have yet to come back: a flatter slope would cost them more.

    Args:
        share: How much of |grad Phi| a step takes away; 0 switches it off.
        every: See ``UpperLevel``.
        start: Share of the lower level's path from which steps are taken.
        until: Lengths of the path that are gone before ``stop_at`` may end the run (1: the path's end, however early
            rows are at their goal). At the goal the steps make the slope flatter.
    """

    similar_alone = False
    needs_goal = True
    optional = True

    def __init__(self, share: float = 0.3, every: int = 1, start: float = 0.0, until: float = 1.0) -> None:
        super().__init__(every, start)
        check_range(0, 1, share=share)
        check_range(1, until=until)
        self.rho, self.until = share, until

    @property
    def moves_first(self) -> bool:  # type: ignore[override]
        """Whether there is a step."""
        return self.rho > 0

    def iterate(self, given: Given, *, due: bool) -> tuple[OuterIteration, dict[str, float]]:
        """Flatten; then both loops."""
        measured: dict[str, float] = {}
        if given.penalised:
            parts = flatten(given.engine, *given.pairs[-1], given.beta, self.rho, given.safeguards)
            measured = parts.scalars()
        return given.loops.first_order(given.engine, given.pairs, given.lr, given.safeguards, given.step), measured

    def begin(self, iterations: int, beta: float) -> None:
        """Nothing: how soon the path is gone, no number says."""

    def acts(self, share: float, path: Path | None) -> bool:
        """By the share of the path, while retain rows are kept."""
        return path is not None and path.share >= self.start and path.kept

    def stays(self, path: Path | None) -> bool:
        """Until the path was gone so many times."""
        return self.rho > 0 and path is not None and path.share < self.until


def _iterate(given: Given, rho: float, *, due: bool) -> OuterIteration:
    """Both loops, of second order where that is ``due``."""
    if not due:
        return given.loops.first_order(given.engine, given.pairs, given.lr, given.safeguards, given.step)
    return given.loops.second_order(given.engine, given.pairs, given.lr, rho, given.beta, given.safeguards, given.step)
