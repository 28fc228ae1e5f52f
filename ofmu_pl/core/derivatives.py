r"""First, second and third derivatives of a loss by its parameters: the protocol that both engines follow.

A *loss* is a sequence of terms, zero-argument functions that each return a scalar; the loss is their sum.
A micro-batch is a term (its mean loss times its share of the batch), and every product below is linear in
the terms, so terms are differentiated one after the other and added: memory is that of the largest term.

    gradient          g = dL/dtheta
    hvp(u)            H u                  = d/dt g(theta + t u)                at t = 0
    third(u, v, w)    D3L[u, v] + H w      = d/dt H(theta + t v) (u + t w)      at t = 0

``third`` is the derivative of ``hvp`` along a curve on which the point moves with v and the vector with w:
the only third-order object that Hess(Phi) v needs (``objective.py``).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ofmu_pl.core.ranks import Ranks
from ofmu_pl.core.vectors import Combination, Vector, zeros_like

Term = Callable[[], Tensor]
Loss = Sequence[Term]


class Expansion(Protocol):
    """A loss differentiated at the parameters' present values; moving the parameters makes it stale.

    Attributes:
        value: The loss.
        gradient: g, one tensor per parameter.
    """

    value: float
    gradient: Vector

    def add_hvp(self, out: Vector, alpha: float, u: Combination) -> None:
        """In place ``out += alpha H u``."""

    def third(self, u: Combination, v: Vector, w: Combination) -> Vector:
        """``D3L[u, v] + H w``."""


class Engine(Protocol):
    """A way to differentiate losses of given parameters.

    Attributes:
        parameters: Leaf tensors, in the order of all vectors.
        ranks: Processes that share each batch.
        first_order: Whether only gradients are taken, so that derivatives of a vector field are differences of it.
        gradient_evaluations: Work done so far, in gradients of a whole loss. By autograd ``hvp`` counts 2 and ``third``
            6, recomputed graphs again; by differences each further gradient counts 1.
    """

    parameters: list[Tensor]
    ranks: Ranks
    first_order: bool
    gradient_evaluations: float

    def expand(self, loss: Loss, order: int = 2) -> Expansion:
        """Differentiate ``loss`` at the parameters' present values.

        Args:
            loss: The terms whose sum is the loss.
            order: The highest derivative that will be asked for; graphs above it are not kept.
        """

    def along(self, field: Callable[[], Vector], v: Vector, base: Vector) -> Vector:
        """Derivative along ``v`` of a vector field of the parameters; ``base`` is the field's present value.

        Only engines with ``first_order`` implement it.
        """


def value_of(engine: Engine, loss: Loss) -> float:
    """The loss at the parameters' present values, without a derivative; it counts a third of a gradient."""
    with torch.no_grad():
        total = sum(term().item() for term in loss)
    engine.gradient_evaluations += 1 / 3
    return engine.ranks.total(total)


def hvp(expansion: Expansion, u: Combination) -> Vector:
    """``H u`` as a new vector."""
    out = zeros_like(expansion.gradient)
    expansion.add_hvp(out, 1.0, u)
    return out


def trainable(module: torch.nn.Module) -> list[Tensor]:
    """The leaf tensors that unlearning may move, each once (tied weights count once)."""
    return [p for p in module.parameters() if p.requires_grad]


def running_statistics(module: torch.nn.Module) -> list[Tensor]:
    """The buffers that BatchNorm's passes in train mode move: means, variances and numbers of batches."""
    found: list[Tensor] = []
    for part in module.modules():
        if getattr(part, "track_running_stats", False):
            found += part.buffers(recurse=False)
    return found
