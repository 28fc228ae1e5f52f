"""The base of our optimizers: what ``torch.optim.Optimizer.step`` does around a step."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


class GradientOptimizer(Optimizer):
    """Moves parameters by the gradients that they have."""

    @abstractmethod
    def move(self, *args: Any, **given: Any) -> None:
        """Take one step, without a graph."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, **given: float) -> Any:
        """Call the closure, if any, with gradients enabled, take one step, and return what the closure returned."""
        returned = None
        if closure is not None:
            with torch.enable_grad():
                returned = closure()
        self.move(**given)
        return returned
