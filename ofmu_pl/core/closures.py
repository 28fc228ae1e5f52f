"""The closure that ``torch.optim.Optimizer.step`` may be given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def evaluated(closure: Callable[[], Any] | None) -> Any:
    """Call a closure with gradients enabled, and return what it returns; ``None`` without one.

    Args:
        closure: A function without arguments that computes the gradients, or ``None``.

    >>> evaluated(lambda: torch.is_grad_enabled()), evaluated(None)
    (True, None)
    """
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()
