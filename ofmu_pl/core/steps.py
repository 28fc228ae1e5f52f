r"""Finds the steps of differences that suit the function at hand: those at which two differences agree.

A difference D(h) = (g(theta + h u) - g(theta)) / h is off by ``noise / h + h truncation``: the rounding of gradients
divided by the step, and what bends within it. How long h may be depends on the function, not on the size of what is
trained: an adapter's weights, or one matrix, or gains of norms ask for steps of a hundred times the one that suits a
whole model, relative to their own norms. Two differences show it without knowing the derivative:

    disagreement(h) = |D(h) - D(4 h)| / |D(4 h)|

is the relative error of D(h) where noise rules, and three times it where truncation does (forward differences); it is
small only where both are. It is that of the batch at hand: another batch's error may be several times as large. First
for -beta (H_f u_f + H_r u_r), then for Hess(Phi) grad Phi, whose differences are of fields that hold the first ones.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from ofmu_pl.core.derivatives import Loss
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.objective import Phi, grad_phi
from ofmu_pl.core.vectors import Vector, add_, norm

RATIO = 4.0
"""Ratio of two steps that are compared."""
GRID = [RATIO**k for k in range(-2, 7)]
"""Steps that a search tries, in units of the engine's default."""
AGREED = 0.2
"""Largest disagreement at which a step is kept; where none agrees as well, the difference is no derivative."""


@dataclass(frozen=True)
class Agreement:
    """Relative disagreement between differences of two steps, at the steps that the engine now has.

    Attributes:
        decorrelation: The disagreement about ``-beta (H_f u_f + H_r u_r)``.
        penalty: The disagreement about ``Hess(Phi) grad Phi``; 0 if it was not asked for.
    """

    decorrelation: float
    penalty: float

    @property
    def order(self) -> int:
        """The highest order of derivatives that differences give here: 1 (gradients), 2 (grad Phi) or 3."""
        if self.decorrelation > AGREED:
            return 1
        return 2 if self.penalty > AGREED else 3


def settle(
    engine: FiniteDifference, forget: Loss, retain: Loss, beta: float, floor: float = 0.0, *, penalised: bool = True
) -> Agreement:
    """Keep the engine's steps if they agree with four times theirs, else set those of ``GRID`` that agree best.

    With forward differences this costs 18 gradients where the steps are kept, up to 78 where they are sought. Without
    a penalty it is 6 and 26, without a similarity 3 and 13. Pass the batch that is used: a few of its rows understated
    the penalty's error fivefold (.047 for .226). Without ``penalised`` Hess(Phi) grad Phi is not needed.
    """
    case = engine, forget, retain, beta, floor
    first, second = engine.step, engine.field_step

    def decorrelation(phi: Phi, step: float) -> Vector:
        engine.set_steps(step, second)
        return phi.decorrelation()

    def penalty(v: Vector, step: float) -> Vector:
        engine.set_steps(first, step)
        return engine.along(partial(grad_phi, *case), v, base=v)

    off_decorrelation = off_penalty = 0.0
    if beta:
        off_decorrelation = _disagreement(partial(decorrelation, Phi(*case)), first)
        engine.set_steps(first, second)
    if penalised and off_decorrelation <= AGREED:
        off_penalty = _disagreement(partial(penalty, grad_phi(*case)), second)
    if max(off_decorrelation, off_penalty) > AGREED:
        if beta:
            first, off_decorrelation = _best(partial(decorrelation, Phi(*case)), engine.default_steps[0])
            engine.set_steps(first, second)
        if penalised:
            second, off_penalty = _best(partial(penalty, grad_phi(*case)), engine.default_steps[1])
    engine.set_steps(first, second)
    return Agreement(off_decorrelation, off_penalty)


def _disagreement(difference: Callable[[float], Vector], step: float) -> float:
    return _distance(difference(step), difference(RATIO * step))


def _best(difference: Callable[[float], Vector], default: float) -> tuple[float, float]:
    """The step between the two neighbours on the grid that agree best, and their disagreement."""
    steps = [default * factor for factor in GRID]
    near = difference(steps[0])
    found = (default, math.inf)
    for step, further in pairwise(steps):
        far = difference(further)
        distance = _distance(near, far)
        if distance < found[1]:
            found = (math.sqrt(step * further), distance)
        near = far
    return found


def _distance(x: Vector, y: Vector) -> float:
    """``|x - y| / |y|``, computed in place of ``x``; infinite where it is no number."""
    size = norm(y)
    add_(x, [(-1.0, y)])
    distance = norm(x)
    if distance == 0.0:
        return 0.0
    return distance / size if size and math.isfinite(distance / size) else math.inf
