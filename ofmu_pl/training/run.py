"""What a method may know of the run that it is part of, whoever makes the run.

A trainer's run is ``trainer_run.TrainerRun``; whoever wants single iterations makes one by hand, of data alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ofmu_pl.core.ranks import ALONE, Ranks

_OLDER = {"16": "16-mixed", "bf16": "bf16-mixed", "32": "32-true", "64": "64-true"}
"""Lightning's older names of precisions, which it still takes."""


def precision_name(given: Any) -> str:
    """Lightning's name of a precision as configurations give it: by an older name, or as ``None``, the default.

    Example:
        >>> precision_name("bf16"), precision_name(64), precision_name(None)
        ('bf16-mixed', '64-true', '32-true')
    """
    name = "32" if given is None else str(given)
    return _OLDER.get(name, name)


@dataclass
class Run:
    """A run without a trainer: one process, no autocast, no checkpoints.

    Attributes:
        data: The ``PairedDataModule`` that batches come from, after ``setup`` (in a plan, after ``blank``).
        ranks: The processes that share each batch.
        precision: Lightning's name of the precision.
        steps: Outer iterations in all; -1 where something else ends the run.
        budget: Gradients that the run may spend (``GradientBudget``); ``None``: as many as it takes.
        step: The present outer iteration, from 1.
        epoch_ends: Whether the present iteration is the last of its epoch.
        stopped: Whether the method has asked for the end of the run.
        checks_itself: Whether a method may spend gradients on checking its numbers; in a plan it may not.
        optimizers: The optimizer whose steps are counted, then those that ``iterate`` steps by itself.
        scheduler: Scheduler of the first optimizer, stepped once per iteration; ``None``: the rate is constant.
    """

    data: Any
    ranks: Ranks = ALONE
    precision: str = "32-true"
    steps: int = -1
    budget: float | None = None
    step: int = 0
    epoch_ends: bool = False
    stopped: bool = False
    checks_itself: bool = True
    optimizers: list[Optimizer] = field(default_factory=list)
    scheduler: Any = None
    _casts: bool = field(default=True, init=False, repr=False)

    def stop(self) -> None:
        """End the run after the present iteration."""
        self.stopped = True

    def advance(self) -> None:
        """Step the first optimizer, and count the step unless the present iteration was counted before."""
        self.optimizers[0].step()

    def forward_context(self) -> AbstractContextManager[Any]:
        """The context of forward passes: ``autocast``, or none inside of ``full_precision``."""
        return self.autocast() if self._casts else nullcontext()

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """A context in which forward passes are not autocast, whatever the run's precision."""
        self._casts = False
        try:
            yield
        finally:
            self._casts = True

    def autocast(self) -> AbstractContextManager[Any]:
        """The context that the precision puts around forward passes."""
        return nullcontext()

    def convert(self, network: nn.Module) -> nn.Module:
        """Convert a network to the precision's types."""
        return network.double() if self.precision == "64-true" else network

    def shard(self, network: nn.Module) -> bool:
        """Cut a network's parameters among the ranks if they hold shards; returns whether they do."""
        return False

    @property
    def resumed_from(self) -> Path | None:
        """The checkpoint that the run goes on from."""
        return None

    @property
    def checkpoint_folders(self) -> set[Path]:
        """Folders in which checkpoints of the run may lie."""
        return set()
