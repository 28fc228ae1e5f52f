"""The exact engine: derivatives of a loss by reverse-mode autograd, one term at a time.

Where the loss is one term whose graph is kept (``order`` says how far), ``hvp`` costs the matrix products of 2 more
gradients and ``third`` those of 6 more. With several terms graphs are rebuilt for each product, which trades time for
memory: 3 gradients for ``hvp``, 9 for ``third``.

``core.preflight`` refuses what the engine cannot differentiate: fused attention (no second derivative), fused LayerNorm
and train-mode BatchNorm (silently wrong third derivatives), reentrant checkpointing and compiled modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ofmu_pl.core.derivatives import Loss
from ofmu_pl.core.ranks import ALONE, Ranks
from ofmu_pl.core.vectors import Combination, Vector, add_, combine, zeros_like


class Autograd:
    """Exact derivatives of losses of ``parameters`` (see the module's text for costs and limits).

    Example:
        For L = theta^3 the gradient is 3 theta^2, and H u is 6 theta u.

        >>> theta = torch.tensor([2.0], requires_grad=True)
        >>> cube = Autograd([theta]).expand([lambda: (theta**3).sum()], order=3)
        >>> out = [torch.zeros(1)]
        >>> cube.add_hvp(out, 1.0, [(1.0, [torch.ones(1)])])
        >>> cube.value, cube.gradient[0].item(), out[0].item()
        (8.0, 12.0, 12.0)
    """

    first_order = False

    def __init__(self, parameters: Sequence[Tensor], ranks: Ranks = ALONE) -> None:
        self.parameters, self.ranks = list(parameters), ranks
        self.gradient_evaluations = 0.0

    def expand(self, loss: Loss, order: int = 2) -> AutogradExpansion:
        """Value, gradient and, where one term allows, the graph for products up to ``order``."""
        return AutogradExpansion(self, loss, order)

    def along(self, field: Callable[[], Vector], v: Vector, base: Vector) -> Vector:
        """Not needed: exact products come from ``AutogradExpansion.third``."""
        raise TypeError("the exact engine differentiates losses, not vector fields")

    def grad(
        self, outputs: Sequence[Tensor], vectors: Sequence[Tensor] | None, cost: float, *, create: bool, retain: bool
    ) -> tuple[Tensor, ...]:
        """Vector-Jacobian product by the parameters, counted as ``cost`` gradients; unused parameters give zeros.

        So do constant outputs: the Hessian of a quadratic has no graph.
        """
        self.gradient_evaluations += cost
        live = [i for i, output in enumerate(outputs) if output.requires_grad]
        if not live:
            return tuple(zeros_like(self.parameters))
        return torch.autograd.grad(
            [outputs[i] for i in live],
            self.parameters,
            None if vectors is None else [vectors[i] for i in live],
            create_graph=create,
            retain_graph=create or retain,
            materialize_grads=True,
        )


class AutogradExpansion:
    """A loss expanded by autograd: ``value``, ``gradient``, products on demand."""

    def __init__(self, engine: Autograd, loss: Loss, order: int) -> None:
        self.engine, self.loss, self.order = engine, loss, order
        self._graph: tuple[Tensor, ...] | None = None
        self._hvp: tuple[Combination, tuple[Tensor, ...]] | None = None
        keep = order > 1 and len(loss) == 1
        self.value = 0.0
        self.gradient = zeros_like(engine.parameters)
        for term in loss:
            value = term()
            g = engine.grad([value], None, 1 / len(loss), create=keep, retain=keep)
            self.value += value.item()
            add_(self.gradient, [(1.0, [x.detach() for x in g])])
            if keep:
                self._graph = g
        self.value = engine.ranks.total(self.value)
        engine.ranks.sum_(self.gradient)

    def _graphs(self) -> Iterator[tuple[Tensor, ...]]:
        """The gradient of each term as a function of the parameters: the kept graph, or one made anew."""
        if self._graph is not None:
            yield self._graph
            return
        for term in self.loss:
            yield self.engine.grad([term()], None, 1 / len(self.loss), create=True, retain=True)

    def add_hvp(self, out: Vector, alpha: float, u: Combination) -> None:
        """In place ``out += alpha H u`` by differentiating <g, u>.

        At order 3 the product's own graph is kept for ``third`` with the same ``u``; at order 2 the gradient's
        graph is freed while it is walked, so a second call builds it again.
        """
        keep = self._graph is not None and self.order > 2
        vector = combine(u)
        with self.engine.ranks.adding(out) as part:
            for g in self._graphs():
                create = keep and self._hvp is None
                hu = self.engine.grad(g, vector, 2 / len(self.loss), create=create, retain=keep)
                add_(part, [(alpha, [x.detach() for x in hu])])
                if create:
                    self._hvp = (u, hu)
                if not keep:
                    self._graph = None

    def third(self, u: Combination, v: Vector, w: Combination) -> Vector:
        """``D3L[u, v] + H w`` in one backward pass of <H u, v> + <g, w>; the kept graphs are spent."""
        out = zeros_like(self.gradient)
        w_vector = combine(w)
        for g in self._graphs():
            if self._hvp is not None and self._hvp[0] is u:
                hu = self._hvp[1]
            else:
                hu = self.engine.grad(g, combine(u), 2 / len(self.loss), create=True, retain=True)
            both = self.engine.grad([*hu, *g], [*v, *w_vector], 6 / len(self.loss), create=False, retain=False)
            add_(out, [(1.0, list(both))])
        self._graph = self._hvp = None
        self.engine.ranks.sum_(out)
        return out
