"""Parts of OFMU for its upper level: what is added to grad L_r, and in which iterations."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from ofmu_pl.core.algorithm import OuterIteration
from ofmu_pl.core.safeguards import Penalty, Safeguards
from ofmu_pl.core.slope import flatten
from ofmu_pl.core.variants import Loops, Setting
from ofmu_pl.core.vectors import Vector
from ofmu_pl.modules.path import Path
from ofmu_pl.support.errors import check_range


@dataclass(frozen=True)
class Iteration:
    """What an upper level makes an outer iteration of.

    Attributes:
        setting: Engine, losses, bounds and who steps.
        loops: The order of the two loops.
        number: Number of the iteration in the run, from 0.
        due: Whether it is of second order, and takes grad Phi or Hess(Phi) grad Phi.
        beta: Weight of the similarity in it; 0: the similarity does not act.
        penalised: Whether the penalty acts in it.
        mean: Gives the ascent's running mean in its optimizer's metric; empty: nothing has stepped yet.
        sides: Gives the mean losses of forget and of held-out rows at the weights of now, in nats; ``None``: there are
            no held-out rows.
    """

    setting: Setting
    loops: Loops
    number: int
    due: bool
    beta: float
    penalised: bool
    mean: Callable[[], Vector]
    sides: Callable[[], tuple[float, float]] | None

    def run(self, rho: float) -> OuterIteration:
        """Both loops, of second order where that is due."""
        if self.due:
            return self.loops.second_order(self.setting, rho, self.beta)
        return self.loops.first_order(self.setting)


class UpperLevel(ABC):
    """What an outer iteration descends along beside grad L_r; a part of your own says it in ``iterate``.

    Args:
        every: One of so many iterations is of second order (1: the paper): it uses similarity and penalty. The others
            ascend on L_f and descend on L_r alone, at T + 1 gradients.
        start: Share of the run from which they use them (0: the paper). Before, they only measure: until something is
            forgotten, the penalty pulls back to the minimum of L_f where the run begins.

    Attributes:
        acted: Iterations so far in which the penalty acted.
    """

    rho: float = 1.0
    """The penalty's weight of now, by which ``iterate`` may go; 0: there is no penalty, and none is ``penalised``."""
    differentiates: bool = True
    """Whether the penalty is a second derivative, Hess(Phi) grad Phi."""
    acts_in_loops: bool = True
    """Whether similarity and penalty act in both loops' own gradients, and not in a step before the loops."""
    needs_goal: bool = False
    """Whether the part goes by the lower level's path."""
    needs_mean: bool = False
    """Whether the part needs the ascent's running mean; ``PathSteps`` then close a quarter of the gap."""
    compares: bool = False
    """Whether the part compares forget with held-out rows."""
    on_bar: tuple[str, ...] = ()
    """Values of every iteration that the progress bar shows beside the losses."""
    optional: bool = False
    """Whether a run goes on, with a warning, where the engine cannot differentiate the network often enough."""

    def __init__(self, every: int = 1, start: float = 0.0) -> None:
        check_range(1, whole=True, every=every)
        check_range(0, 1, start=start)
        self.every, self.start = every, start
        self.acted = 0

    @abstractmethod
    def iterate(self, given: Iteration) -> tuple[OuterIteration, dict[str, float]]:
        """Run the algorithm, and count in ``acted`` whether the penalty acted; returns what the part measured, too."""

    def within(self, safeguards: Safeguards) -> Safeguards:
        """The bounds as the part needs them, of those that were given, once."""
        return safeguards

    def begin(self, iterations: int, beta: float) -> None:
        """Warn of a run of so many iterations (-1: no number ends it) in which similarity and penalty never act."""
        last = (iterations - 1) // self.every * self.every  # of second order; below 0 where no number ends the run
        if (beta > 0 or self.rho > 0) and 0 <= last < self.start * iterations:
            rank_zero_warn(
                f"Similarity and penalty act in none of the run's {iterations} iterations: lower model.upper.every "
                f"({self.every}) or model.upper.start ({self.start})."
            )

    def acts(self, gone: float, path: Path | None) -> bool:
        """Whether similarity and penalty act, after a share ``gone`` of the run."""
        return gone >= self.start

    def stays(self, path: Path | None) -> bool:
        """Whether the run must go on for the penalty, though forget rows are where they are to end."""
        return False

    def end(self) -> None:  # noqa: B027  # most parts have nothing to say
        """Say what a reader of the run's options should know of it."""

    def skip_to_late(self) -> None:  # noqa: B027  # most parts find it by the number of the iteration
        """Stand where the part acts, for a rehearsal, which has no numbers to find that by."""

    def state_dict(self) -> dict[str, float]:
        """What a resumed run goes on with."""
        return {"acted": self.acted}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore what ``state_dict`` gave."""
        self.acted = int(state["acted"])


class NoPenalty(UpperLevel):
    """Nothing is added to grad L_r; the similarity still acts in ascents where ``model.beta`` is above 0.

    Args:
        every: See ``UpperLevel``.
        start: See ``UpperLevel``.
    """

    rho = 0.0

    def iterate(self, given: Iteration) -> tuple[OuterIteration, dict[str, float]]:
        """Ascend on Phi, in iterations of second order; else on L_f."""
        return given.run(0.0), {}


class PrintedPenalty(UpperLevel):
    """The paper's penalty: ``2 rho_k Hess(Phi) grad Phi``, rho_{k+1} = min(gamma rho_k, rho_max).

    An iteration's penalty counts for all iterations that it stands for: rho and the clip are multiplied by ``every``.
    In every iteration of the run rho grows.

    Args:
        rho_0: First penalty parameter (paper: 0.3); 0 switches the penalty off.
        gamma: Growth of rho an outer iteration (paper: between 1.5 and 2).
        every: See ``UpperLevel``.
        start: See ``UpperLevel``.

    Example:
        >>> PrintedPenalty(rho_0=0.25, gamma=2).rho
        0.25
    """

    on_bar = ("rho",)

    def __init__(self, rho_0: float = 0.3, gamma: float = 1.5, every: int = 1, start: float = 0.0) -> None:
        super().__init__(every, start)
        self.schedule = Penalty(rho_0, gamma)
        self.clipped = 0

    @property
    def rho(self) -> float:  # type: ignore[override]
        """rho_k."""
        return self.schedule.rho

    def within(self, safeguards: Safeguards) -> Safeguards:
        """Take the cap of rho, and give the penalty's clip for each iteration that it counts for.

        Raises:
            UserError: The cap is below rho_0.
        """
        self.schedule = Penalty(self.schedule.rho, self.schedule.gamma, safeguards.rho_max)
        clip = safeguards.penalty_clip
        return replace(safeguards, penalty_clip=None if clip is None else self.every * clip)

    def iterate(self, given: Iteration) -> tuple[OuterIteration, dict[str, float]]:
        """Algorithm 1, in iterations of second order; else first order. Then rho grows."""
        found = given.run(self.every * self.rho if given.penalised else 0.0)
        self.acted += given.penalised
        self.clipped += found.parts is not None and found.parts.clipped
        self.schedule.update()
        return found, {}

    def end(self) -> None:
        """Say whether rho had an effect."""
        if 2 * self.clipped > self.acted:
            rank_zero_info(
                f"In {self.clipped} of the {self.acted} iterations in which it acted the penalty was longer than its "
                "bound (model.safeguards.penalty_clip), which then set its length: rho had no effect there."
            )

    def state_dict(self) -> dict[str, float]:
        """With rho_k, and how often the bound was too short."""
        return {**super().state_dict(), "rho": self.schedule.rho, "clipped": self.clipped}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on with these."""
        super().load_state_dict(state)
        self.schedule.rho, self.clipped = state["rho"], int(state["clipped"])


class FlatteningStep(UpperLevel):
    """A plain step before the ascents lowers |grad Phi| by a share (``core.slope``); both loops are of first order.

    No learning rate scales it, so it goes with steps that have none. The similarity acts in Phi of this step alone. The
    step pauses while retain rows have yet to come back: a flatter slope would cost them more.

    Args:
        share: How much of |grad Phi| a step takes away; 0 switches it off.
        every: One of so many iterations may begin with the step.
        start: Share of the lower level's path from which steps are taken.
        until: Lengths of the path that are gone before ``stop_at`` may end the run (1: the path's end, however early
            rows are at their goal). At the goal the steps make the slope flatter.
    """

    acts_in_loops = False
    needs_goal = True
    on_bar = ("rho",)
    optional = True

    def __init__(self, share: float = 0.3, every: int = 1, start: float = 0.0, until: float = 1.0) -> None:
        super().__init__(every, start)
        check_range(0, 1, share=share)
        check_range(1, until=until)
        self.rho, self.until = share, until

    def iterate(self, given: Iteration) -> tuple[OuterIteration, dict[str, float]]:
        """Flatten; then both loops."""
        measured: dict[str, float] = {}
        if given.penalised:
            self.acted += 1
            setting = given.setting
            parts = flatten(setting.engine, *setting.pairs[-1], given.beta, self.rho, setting.safeguards)
            measured = parts.scalars()
        return given.loops.first_order(given.setting), measured

    def begin(self, iterations: int, beta: float) -> None:
        """Nothing: how soon the path is gone, no number says."""

    def acts(self, gone: float, path: Path | None) -> bool:
        """By the share of the path, while retain rows are kept."""
        return path is not None and path.share >= self.start and path.kept

    def stays(self, path: Path | None) -> bool:
        """Until the path was gone so many times."""
        return self.rho > 0 and path is not None and path.share < self.until
