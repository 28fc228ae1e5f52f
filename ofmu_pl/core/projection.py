r"""Takes out of one gradient its part along another, which may be a moving average.

x <- x - <x, y> / |y|^2 y                   one inner product and one norm, no derivative
m <- w g + (1 - w) m,   m = 0 at first      the average, whose length does not matter to a projection on it
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ofmu_pl.core.shared_adam import GradientOptimizer
from ofmu_pl.core.vectors import Vector, add_, dot, norm, scale_, set_gradients


def project_(x: Vector, y: Vector, *, conflicts_only: bool = False) -> float:
    """Take out of ``x``, in place, its part along ``y``; where ``y`` is zero, nothing is taken out.

    With ``conflicts_only`` it changes only if it points against ``y``; the inner product is 0 or more afterwards.

    Returns:
        The cosine of the two before; 0 where one of them is zero.

    Example:
        >>> x, y = [torch.tensor([-1.0, 2.0])], [torch.tensor([4.0, 0.0])]
        >>> round(project_(x, y), 4), x
        (-0.4472, [tensor([0., 2.])])
    """
    inner, size = dot(x, y), norm(y)
    sizes = size * norm(x)
    if size and (inner < 0 or not conflicts_only):
        add_(x, [(-inner / size**2, y)])
    return inner / sizes if sizes else 0.0


class MovingAverage(GradientOptimizer):
    """Keeps the moving average of gradients as an optimizer keeps its state, and moves no parameter.

    So checkpoints, FSDP2's sharding, recovery from a full memory and plans treat the average as optimizer state.

    Args:
        params: Parameters.
        weight: Share of the newest gradient in the average, w, above 0; 1 is the newest gradient alone.

    Example:
        >>> theta = torch.nn.Parameter(torch.tensor([1.0]))
        >>> average = MovingAverage([theta], weight=0.75)
        >>> [average.update([torch.tensor([g])])[0].item() for g in (4.0, 0.0)], theta.item()
        ([3.0, 0.75], 1.0)
    """

    def __init__(self, params: Sequence[Tensor], weight: float) -> None:
        super().__init__(params, {"weight": weight, "lr": 0.0})  # which Lightning's LearningRateMonitor reads

    def update(self, gradient: Vector) -> Vector:
        """Take a gradient in, one tensor per parameter, and return the average as it then is."""
        (group,) = self.param_groups
        set_gradients(group["params"], gradient)
        self.step()
        self.zero_grad()
        return [self.state[p]["average"] for p in group["params"]]

    def move(self) -> None:
        """Take in the gradients that the parameters have."""
        (group,) = self.param_groups
        for p in group["params"]:
            if not self.state[p]:
                self.state[p]["average"] = torch.zeros_like(p)
        averages = [self.state[p]["average"] for p in group["params"]]
        scale_(averages, 1 - group["weight"])
        add_(averages, [(group["weight"], [p.grad for p in group["params"]])])
