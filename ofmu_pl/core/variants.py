r"""Outer iterations that are ours: Algorithm 1 within bounds, with steps of an optimizer, and what costs less.

guarded           Algorithm 1 (``algorithm.py``) within ``Safeguards``, whose ascent steps an optimizer may take
from the start    the outer gradient at theta, before the ascents: at theta_in it contains, to first order,
                  Hess(L_r) times the ascent's step, by which the descent takes a part of the ascent back
first order       ascents on L_f alone, and g_r alone: no second derivatives, T + 1 gradients

All of them take the arguments of ``outer_iteration``. L_f of the ascent may be bent at a ceiling; the last L_f, whose
slope the penalty lowers, is plain. The ``step`` takes the ascent steps; ``None``: plain ones of ``eta_in``.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ofmu_pl.core.algorithm import OuterIteration
from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.inner import Step, ascend
from ofmu_pl.core.objective import outer_gradient
from ofmu_pl.core.safeguards import Safeguards

Pairs = Sequence[tuple[Loss, Loss]]
"""(L_f, L_r) on T + 1 fresh pairs of batches."""


def guarded_iteration(
    engine: Engine, pairs: Pairs, eta_in: float, rho: float, beta: float, safeguards: Safeguards, step: Step | None
) -> OuterIteration:
    """Ascend on Phi, then differentiate F at theta_in, both within bounds."""
    ascent = ascend(engine, pairs[:-1], eta_in, beta, safeguards, step)
    parts = outer_gradient(engine, *pairs[-1], rho, beta, safeguards)
    return OuterIteration(parts.total_(), parts.loss_r, ascent, parts)


def iteration_from_start(
    engine: Engine, pairs: Pairs, eta_in: float, rho: float, beta: float, safeguards: Safeguards, step: Step | None
) -> OuterIteration:
    """Differentiate F at theta, then ascend; all ascents use the similarity's part of grad Phi that was taken there.

    Example:
        As in ``outer_iteration``, but with grad F at (1, 1): (theta - q) + 2 rho (theta - p).

        >>> import torch
        >>> from ofmu_pl.core.autograd import Autograd
        >>> from ofmu_pl.core.safeguards import AS_PRINTED
        >>> p, q = torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])
        >>> theta = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> forget, retain = [lambda: ((theta - p) ** 2).sum() / 2], [lambda: ((theta - q) ** 2).sum() / 2]
        >>> found = iteration_from_start(Autograd([theta]), [(forget, retain)] * 2, 1.0, 0.5, 0.0, AS_PRINTED, None)
        >>> theta.tolist(), [g.tolist() for g in found.gradient]
        ([2.0, 2.0], [[1.0, 2.0]])
    """
    parts = outer_gradient(engine, *pairs[-1], rho, beta, safeguards)
    gradient = parts.total_()
    ascent = ascend(engine, pairs[:-1], eta_in, 0.0, safeguards, step, parts.decorrelation)
    return OuterIteration(gradient, parts.loss_r, ascent, parts)


def first_order_iteration(
    engine: Engine, pairs: Pairs, eta_in: float, safeguards: Safeguards, step: Step | None
) -> OuterIteration:
    """Ascend on L_f, then take g_r at theta_in."""
    ascent = ascend(engine, pairs[:-1], eta_in, 0.0, safeguards, step)
    g_r = engine.expand(pairs[-1][1], order=1)
    return OuterIteration(g_r.gradient, g_r.value, ascent, None)


def first_order_from_start(
    engine: Engine, pairs: Pairs, eta_in: float, safeguards: Safeguards, step: Step | None
) -> OuterIteration:
    """Take g_r at theta, then ascend on L_f."""
    g_r = engine.expand(pairs[-1][1], order=1)
    ascent = ascend(engine, pairs[:-1], eta_in, 0.0, safeguards, step)
    return OuterIteration(g_r.gradient, g_r.value, ascent, None)


class Loops(NamedTuple):
    """The order of the two loops.

    Attributes:
        first_order: An iteration of first order.
        second_order: An iteration with similarity and penalty.
        ends_at_gradient: Whether the outer gradient is the last pass, so that the ascents come before it.
    """

    first_order: Callable[[Engine, Pairs, float, Safeguards, Step | None], OuterIteration]
    second_order: Callable[[Engine, Pairs, float, float, float, Safeguards, Step | None], OuterIteration]
    ends_at_gradient: bool


LOOPS = {
    "end": Loops(first_order_iteration, guarded_iteration, ends_at_gradient=True),
    "start": Loops(first_order_from_start, iteration_from_start, ends_at_gradient=False),
}
"""By where the outer gradient is taken: at the ascents' end (theta_in, the paper's) or at their start (theta)."""
