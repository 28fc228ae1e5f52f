"""Rectified steps: one of the gradients of forgetting and retaining is changed by the other before they are added.

SAUL, at the end of this file, weighs the forget gradient by a constraint on the forget loss.

With g_f the gradient of a forget loss that is *minimised* (NPO's, or minus a loss) and g_r that of the retain loss:

    BLUR    gamma g_f + alpha (g_r - <g_r, g_f> / |g_f|^2 g_f)                    retaining gives way to forgetting
    GRU     gamma (g_f - min(0, <g_f, m>) / |m|^2 m) + alpha g_r                  forgetting gives way to retaining
            with m <- w g_r + (1 - w) m
    PCGrad  gamma (g_f - min(0, <g_f, g_r>) / |g_r|^2 g_r)                        each gives way to the other
            + alpha (g_r - min(0, <g_f, g_r>) / |g_f|^2 g_f)
    HAMU    argmax <d, g_r>  with  |d| <= |g_r|  and  <d, g_f> >= gain            retaining gives way up to a bound

Overlays in configs/methods say where the published codes differ from the papers and from this; docs/methods.md says
what OFMU's similarity adds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor
from torch.optim import Optimizer

from ofmu_pl.core.projection import MovingAverage, project_
from ofmu_pl.core.vectors import Vector, combine, dot, norm, scale_
from ofmu_pl.support.errors import check_range


class Rectifier(ABC):
    """Says how one of a method's two gradients is changed by the other."""

    in_words: ClassVar[str]
    """What the rectifier does, in one sentence for people who do not know the field."""
    changes_retain: ClassVar[bool]
    """Whether the retain gradient changes, and so needs a weight above 0."""

    def memory(self, parameters: Sequence[Tensor]) -> list[Optimizer]:
        """Make what it remembers from one iteration to the next, as optimizers of the parameters, which runs keep."""
        return []

    @abstractmethod
    def rectify_(self, forget: Vector, retain: Vector) -> float:
        """Change them in place: the forget loss's gradient, times its weight, and the retain loss's.

        Returns:
            The cosine of the two vectors that are compared, before the change.
        """


class BLUR(Rectifier):
    """``g_r + (gamma - <g_r, g_f> / |g_f|^2) g_f``, one step for two levels (Reisizadeh et al. 2025, arXiv 2506.08164).

    The retain gradient loses its part along the forget gradient, whether the two conflict or not, so that to first
    order retaining changes nothing of what is forgotten: ``<step, g_f> = gamma |g_f|^2``. The method's ``gamma`` is the
    paper's, and its ``alpha``, 1 in the paper, weighs what is left of the retain gradient.

    Example:
        >>> from ofmu_pl import NPO, CausalLM
        >>> NPO(CausalLM("gpt2"), rectify=BLUR()).streams
        ('forget', 'retain')
    """

    in_words = "Each step for rows that must stay left out whatever would have helped or hindered forgetting."
    changes_retain = True

    def rectify_(self, forget: Vector, retain: Vector) -> float:
        """Make the retain gradient orthogonal to the forget gradient."""
        return project_(retain, forget)


class GRU(Rectifier):
    """Gradient rectified unlearning (Wang et al. 2025, arXiv 2503.09117): no forget step works against retaining.

    If the forget gradient points against a moving average of retain gradients, its part along the average is removed.
    Published runs descend on the rectified gradient alone: give ``alpha: 0``; retain gradients are computed even so.

    Args:
        weight: Share of the newest retain gradient in the average (published code: 0.8; 1 is no average).

    Example:
        >>> from ofmu_pl import NPO, CausalLM
        >>> NPO(CausalLM("gpt2"), alpha=0, rectify=GRU(weight=0.9)).streams
        ('forget', 'retain')
    """

    in_words = "Where a step of forgetting would have harmed rows that must stay, that part of it was left out."
    changes_retain = False

    def __init__(self, weight: float = 0.8) -> None:
        check_range(0, 1, above=True, weight=weight)
        self.weight = weight
        self._average: MovingAverage | None = None

    def memory(self, parameters: Sequence[Tensor]) -> list[Optimizer]:
        """Make the moving average of retain gradients."""
        self._average = MovingAverage(parameters, self.weight)
        return [self._average]

    def rectify_(self, forget: Vector, retain: Vector) -> float:
        """Take out of the forget gradient what points against the average, which takes in the retain gradient first."""
        assert self._average is not None, "memory has not run"
        return project_(forget, self._average.update(retain), conflicts_only=True)


class PCGrad(Rectifier):
    """Projecting conflicting gradients (Yu et al. 2020, arXiv 2001.06782, algorithm 1), with two tasks.

    Where the two gradients point against each other, each loses its part along the other as it was before. Faithful:
    with two tasks the paper's random order of them changes nothing.

    Example:
        >>> import torch
        >>> forget, retain = [torch.tensor([1.0, 0.0])], [torch.tensor([-1.0, 1.0])]
        >>> round(PCGrad().rectify_(forget, retain), 4), forget, retain
        (-0.7071, [tensor([0.5000, 0.5000])], [tensor([0., 1.])])
    """

    in_words = "Where steps of forgetting and of keeping would have harmed each other, that part of both was left out."
    changes_retain = True

    def rectify_(self, forget: Vector, retain: Vector) -> float:
        """Take out of each what points against the other."""
        before = combine([(1.0, forget)])
        cosine = project_(forget, retain, conflicts_only=True)
        project_(retain, before, conflicts_only=True)
        return cosine


class HAMU(Rectifier):
    """The step of least harm at a demanded gain: HAMU-Q of Chen et al. (2026, arXiv 2606.02119).

    Of all steps no longer than the plain retain step, the one that is best for the retain loss while it lowers the
    forget loss by ``gain`` times the learning rate, both to first order:

        d = g_r                                                              if <g_r, g_f> >= gain
        d = gain/|g_f|^2 g_f + sqrt(|g_r|^2 - gain^2/|g_f|^2) n              otherwise, n = P g_r / |P g_r|
        d = gain/|g_f|^2 g_f                                                 if |g_r| |g_f| < gain: no such step

    with ``P g_r = g_r - <g_r, g_f>/|g_f|^2 g_f``, for steps of SGD at ``gamma: 1, alpha: 1``. Faithful to the authors'
    runs (aoi3142/HAMU d841b70: ``use_lr_radius``; with ``per_tensor``, ``distribute_constraint_grad_norm``); their
    optional end of a run, where |P g_r| |g_f| < gain, and HAMU-U are not offered.

    Args:
        gain: What the forget loss is to lose in a step, in nats per unit of learning rate (published runs: 0.5).
        per_tensor: Whether each tensor takes its own step, with the gain shared out by |g_f| |g_r| (authors' code).

    Example:
        >>> import torch
        >>> forget, retain = [torch.tensor([1.0, 0.0])], [torch.tensor([1.0, 5.0])]
        >>> _ = HAMU(gain=3.0).rectify_(forget, retain)
        >>> (forget[0] + retain[0]).round(decimals=4)
        tensor([3.0000, 4.1231])
    """

    in_words = "Each step kept rows that must stay as well as could be, while it forgot a little that was fixed before."
    changes_retain = True

    def __init__(self, gain: float = 0.5, per_tensor: bool = False) -> None:
        check_range(0, gain=gain)
        self.gain, self.per_tensor = gain, per_tensor

    def rectify_(self, forget: Vector, retain: Vector) -> float:
        """Give both the lengths that make the step of least harm."""
        inner, sizes = dot(forget, retain), norm(forget) * norm(retain)
        parts = [([f], [r]) for f, r in zip(forget, retain, strict=True)] if self.per_tensor else [(forget, retain)]
        products = [norm(f) * norm(r) for f, r in parts]
        each = self.gain / sum(products) if any(products) else 0.0
        for (f, r), product in zip(parts, products, strict=True):
            _least_harm_(f, r, each * product)
        return inner / sizes if sizes else 0.0


def _least_harm_(forget: Vector, retain: Vector, gain: float) -> None:
    """Turn two gradients into the two parts of HAMU's step."""
    inner, square, longest = dot(forget, retain), dot(forget, forget), norm(retain)
    if inner >= gain:
        scale_(forget, 0.0)
        return
    rest = longest**2 - gain**2 / square if square else -1.0
    project_(retain, forget)
    left = norm(retain)
    # What is left of parallel gradients is rounding.
    scale_(retain, math.sqrt(rest) / left if rest > 0 and left > 1e-6 * longest else 0.0)
    scale_(forget, gain / square if square else 0.0)


class SAUL:
    """``L <= level`` for the forget term's loss L, by a multiplier m that weighs the term (Choi et al. 2026, SAUL).

    Before each step ``m <- max(0, m + step (L - level))``, from 0: the weight grows while too little is forgotten. Once
    L is below the level, m falls to 0, and L goes further meanwhile. L is the batch's loss where its gradient is taken.
    Simplified: the paper's augmented Lagrangian (section 4.1), around any forget term; ``sam_rho`` adds the forget
    side's sharpness. The retain side's sharpness and an optimizer for each side are left out.

    Args:
        level: Largest forget loss (authors, TOFU's forget01: answers' losses of 10 nats, which is -10 of GradDiff).
        step: Step of the multiplier (authors: 1e-3).

    Example:
        >>> multiplier = SAUL(level=-10.0, step=0.5)
        >>> [multiplier.update(loss) for loss in (-2.0, -6.0, -20.0, -20.0)]
        [4.0, 6.0, 1.0, 0.0]
    """

    in_words = "Once the forgotten rows had reached a fixed level, the push to forget faded."

    def __init__(self, level: float, step: float = 1e-3) -> None:
        check_range(0, above=True, step=step)
        self.level, self.step, self.multiplier = level, step, 0.0

    def update(self, loss: float) -> float:
        """Move the multiplier by a batch's forget loss, and return it."""
        self.multiplier = max(0.0, self.multiplier + self.step * (loss - self.level))
        return self.multiplier
