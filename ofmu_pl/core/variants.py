r"""Outer iterations that are ours: Algorithm 1 within bounds, with steps of an optimizer, and what costs less.

guarded           Algorithm 1 (``algorithm.py``) within ``Safeguards``, whose ascent steps an optimizer may take
from the start    the outer gradient at theta, before the ascents: at theta_in it contains, to first order,
                  Hess(L_r) times the ascent's step, by which the descent takes a part of the ascent back
first order       ascents on L_f alone, and g_r alone: no second derivatives, T + 1 gradients

L_f of the ascent may be bent at a ceiling; the last L_f, whose slope the penalty lowers, is plain.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ofmu_pl.core.algorithm import InnerStep, OuterIteration, Step, ascend
from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.objective import outer_gradient
from ofmu_pl.core.reach import Back
from ofmu_pl.core.safeguards import Safeguards
from ofmu_pl.core.vectors import Vector


@dataclass(frozen=True)
class Setting:
    """What an outer iteration has.

    Attributes:
        engine: Differentiates the losses and holds the parameters.
        pairs: (L_f, L_r) on T + 1 fresh pairs of batches.
        lr: eta_in of plain ascent steps.
        safeguards: Bounds.
        step: Takes the ascent steps; ``None``: plain ones.
        back: Where ascents take their gradients, seen from the parameters (``reach.py``); ``None``: where they are.
    """

    engine: Engine
    pairs: Sequence[tuple[Loss, Loss]]
    lr: float
    safeguards: Safeguards
    step: Step | None = None
    back: Back | None = None

    def ascend(self, beta: float, decorrelation: Vector | None = None) -> list[InnerStep]:
        """T ascents on Phi, or with ``beta`` 0 on L_f and along a ``decorrelation`` that is known."""
        pairs, bounds = self.pairs[:-1], self.safeguards
        return ascend(self.engine, pairs, self.lr, beta, bounds, self.step, decorrelation, self.back)


def guarded_iteration(setting: Setting, rho: float, beta: float) -> OuterIteration:
    """Ascend on Phi, then differentiate F at theta_in, both within bounds."""
    ascent = setting.ascend(beta)
    parts = outer_gradient(setting.engine, *setting.pairs[-1], rho, beta, setting.safeguards)
    return OuterIteration(parts.total_(), parts.loss_r, ascent, parts)


def iteration_from_start(setting: Setting, rho: float, beta: float) -> OuterIteration:
    """Differentiate F at theta, then ascend; all ascents use the similarity's part of grad Phi that was taken there.

    Example:
        As in ``outer_iteration``, but with grad F at (1, 1): (theta - q) + 2 rho (theta - p).

        >>> import torch
        >>> from ofmu_pl.core.autograd import Autograd
        >>> from ofmu_pl.core.safeguards import AS_PRINTED
        >>> p, q = torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])
        >>> theta = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> forget, retain = [lambda: ((theta - p) ** 2).sum() / 2], [lambda: ((theta - q) ** 2).sum() / 2]
        >>> setting = Setting(Autograd([theta]), [(forget, retain)] * 2, lr=1.0, safeguards=AS_PRINTED)
        >>> found = iteration_from_start(setting, rho=0.5, beta=0.0)
        >>> theta.tolist(), [g.tolist() for g in found.gradient]
        ([2.0, 2.0], [[1.0, 2.0]])
    """
    parts = outer_gradient(setting.engine, *setting.pairs[-1], rho, beta, setting.safeguards)
    gradient = parts.total_()
    return OuterIteration(gradient, parts.loss_r, setting.ascend(0.0, parts.decorrelation), parts)


def first_order_iteration(setting: Setting) -> OuterIteration:
    """Ascend on L_f, then take g_r at theta_in."""
    ascent = setting.ascend(0.0)
    g_r = setting.engine.expand(setting.pairs[-1][1], order=1)
    return OuterIteration(g_r.gradient, g_r.value, ascent, None)


def first_order_from_start(setting: Setting) -> OuterIteration:
    """Take g_r at theta, then ascend on L_f."""
    g_r = setting.engine.expand(setting.pairs[-1][1], order=1)
    return OuterIteration(g_r.gradient, g_r.value, setting.ascend(0.0), None)


class Loops(NamedTuple):
    """The order of the two loops.

    Attributes:
        first_order: An iteration of first order.
        second_order: An iteration with similarity and penalty, of weights rho and beta.
        ends_at_gradient: Whether the outer gradient is the last pass, so that the ascents come before it.
    """

    first_order: Callable[[Setting], OuterIteration]
    second_order: Callable[[Setting, float, float], OuterIteration]
    ends_at_gradient: bool


LOOPS = {
    "end": Loops(first_order_iteration, guarded_iteration, ends_at_gradient=True),
    "start": Loops(first_order_from_start, iteration_from_start, ends_at_gradient=False),
}
"""By where the outer gradient is taken: at the ascents' end (theta_in, the paper's) or at their start (theta)."""
