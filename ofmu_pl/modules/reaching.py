"""Reach, a part for OFMU's upper level: the ascents' gradients are taken where relearning would be."""

from dataclasses import replace

from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from ofmu_pl.core.algorithm import OuterIteration
from ofmu_pl.core.derivatives import value_of
from ofmu_pl.core.reach import displaced, share, to_unit_
from ofmu_pl.core.vectors import Combination, Vector, norm
from ofmu_pl.modules.path import Path
from ofmu_pl.modules.upper_level import Iteration, UpperLevel
from ofmu_pl.support.errors import check_range

PLACES = [10 ** (-k / 3) for k in range(3, 16)]
"""How far back ``Reach`` looks, as a root mean square over the weights: from .1 to 1e-5."""


class Reach(UpperLevel):
    """Ascents take their gradients where relearning would bring the rows (``core.reach``), at no further gradient.

    Ascent and penalty are then one gradient, in every iteration from ``start`` on. The stepper's running mean says the
    direction, so ``PlainSteps`` do not go with it; ``PathSteps`` close a quarter of the gap there. It takes two vectors
    of the parameters' size more.

    Args:
        length: r, the longest way back, as a root mean square over the weights. ``None``: three times as far as where
            forget and retain loss together are lowest on the way back, looked for once, when the first ascent would
            reach.
        drop: By what share forget rows' loss must be below that of held-out rows a third of the way back, at the same
            look. Else relearning brings nothing back but what the model knows of unseen rows, too, and no ascent
            reaches. Without held-out rows it must be below forget rows' own loss of now. 0 with a ``length`` that is
            given: there is no look.
        start: Share of the run from which ascents reach, and the similarity acts, in every iteration; with
            ``PathSteps`` of the path, which such a run goes to its end.
        start_iterations: Number of the run's first iterations in which no ascent reaches, whatever ``start`` says: in
            a short run rows would not rise.

    Attributes:
        open: Whether ascents reach; ``None``: the loss on the way back is yet to be looked at.
    """

    differentiates = False
    needs_mean = True
    on_bar = ("reach",)

    def __init__(
        self, length: float | None = None, drop: float = 0.0, start: float = 0.31, start_iterations: int = 0
    ) -> None:
        super().__init__(start=start)
        check_range(0, above=True, length=length)
        check_range(0, whole=True, start_iterations=start_iterations)
        check_range(0, 1, drop=drop)
        self.length, self.drop, self.start_iterations = length, drop, start_iterations
        self.open = None if drop or length is None else True
        self.compares = self.open is None

    @property
    def rho(self) -> float:  # type: ignore[override]
        """r, or 1 before it is found."""
        return 1.0 if self.length is None else self.length

    def iterate(self, given: Iteration) -> tuple[OuterIteration, dict[str, float]]:
        """Both loops, with the ascents' gradients taken back there."""
        given = replace(given, due=given.due and given.beta > 0)
        measured = {"reach": 0.0, "rho": 0.0}
        u = given.mean() if given.penalised and given.number >= self.start_iterations else []
        if not to_unit_(u):
            return given.run(0.0), measured
        if self.open is None:
            measured |= self._look(given, u)
        if not self.open:
            return given.run(0.0), measured
        steps = len(given.setting.pairs) - 1
        lengths = [self.rho * share(given.number * steps + t) for t in range(steps)]

        def back(t: int) -> Combination:
            if t == 0:
                return [(-lengths[t], u)]
            now = given.mean()  # which the ascents before have moved
            to_unit_(now)
            return [(-lengths[t], now)]

        found = replace(given, setting=replace(given.setting, back=back)).run(0.0)
        self.acted += 1
        return found, measured | {"reach": lengths[0], "rho": self.rho}

    def _look(self, given: Iteration, u: Vector) -> dict[str, float]:
        """Measure once where on the way back both losses are lowest, and how well forget rows are known there.

        Places are tried from far to near, until the sum of both losses rises again.
        """
        engine, (forget, retain) = given.setting.engine, given.setting.pairs[-1]
        here = engine.expand(forget, order=1)
        value, slope = here.value, norm(here.gradient)
        del here  # its gradient is not needed beside the next one
        value_back, where, lowest = value, 0.0, value + value_of(engine, retain)
        for length in PLACES if self.length is None else [self.length / 3]:
            with displaced(engine.parameters, [(-length, u)]):
                forgotten = value_of(engine, forget)
                both = forgotten + value_of(engine, retain)
            if both < lowest:
                value_back, where, lowest = forgotten, length, both
            elif where:
                break
        self.length = 3 * where if self.length is None else self.length
        if not where:
            self.open = False
            rank_zero_info("On the way back both losses together do not fall, so that ascents do not reach.")
            return {"look/drop": 0.0, "look/grad_L_f": slope}
        with displaced(engine.parameters, [(-where, u)]):
            slope_back = norm(engine.expand(forget, order=1).gradient)
            ours, null = (value_back, value) if given.sides is None else given.sides()
        self.open = ours <= (1 - self.drop) * null
        if not self.open:
            whose = "its value of now" if given.sides is None else "that of held-out rows"
            rank_zero_info(
                f"Relearning would bring the forget rows' loss to {ours:.2f} nats. Ascents reach where it would be at "
                f"most {1 - self.drop:.0%} (model.upper.drop) of {whose}, {null:.2f}; here they do not."
            )
        below = 1 - ours / null if null else 0.0
        return {"look/drop": below, "look/grad_L_f": slope, "look/grad_L_f_back": slope_back}

    def stays(self, path: Path | None) -> bool:
        """Until the path is gone, however early rows are at their goal."""
        return path is not None and path.share < 1

    def end(self) -> None:
        """Say that no ascent reached because the run ended before."""
        if self.open is not False and not self.acted:
            rank_zero_warn(
                "The run, of first order so far, ended before ascents were to reach: make it longer, or lower "
                f"model.upper.start ({self.start}) or model.upper.start_iterations ({self.start_iterations})."
            )

    def skip_to_late(self) -> None:
        """Reach, as if the loss had fallen."""
        self.open, self.length, self.start_iterations = True, self.length or 3e-3, 0

    def state_dict(self) -> dict[str, float]:
        """With what the look found."""
        state = super().state_dict()
        if self.open is not None and self.length is not None:
            state |= {"open": float(self.open), "length": self.length}
        return state

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on with it."""
        super().load_state_dict(state)
        if "open" in state:
            self.open, self.length = bool(state["open"]), state["length"]
