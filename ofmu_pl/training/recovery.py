"""Makes a failed iteration again: with a smaller step after a divergence, with smaller micro-batches on a full GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import running_statistics, trainable
from ofmu_pl.core.vectors import local
from ofmu_pl.support.errors import DivergedError, UserError
from ofmu_pl.training.run import Run

KEPT = 3
"""Number of iterations that can be taken back together."""


class Recoverable(Protocol):
    """The part of a method that recovery needs.

    Attributes:
        run: The run with its optimizers.
        network: The network whose trainable parameters move.
        micro_batch_size: Samples differentiated at a time, which recovery halves; ``None``: all.
        moves_parameters: Whether an iteration moves the parameters before the first optimizer does.
    """

    run: Run
    network: nn.Module | None
    micro_batch_size: int | None
    moves_parameters: ClassVar[bool]

    @property
    def inner_optimizers(self) -> list[Optimizer]:
        """The optimizers that an iteration steps by itself."""
        ...

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        ...

    def weights_changed(self) -> None:
        """Note that parameters were written from outside."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the method's own state."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take back what ``on_save_checkpoint`` has added."""


@dataclass
class Start:
    """The state at the beginning of an iteration, to which it can be taken back.

    Attributes:
        number: Number of the iteration, from 1.
        iteration: Makes the iteration, with its batches.
        host: Weights, and statistics of BatchNorm, outside a GPU's memory.
        state: State of optimizers, scheduler and method.
    """

    number: int
    iteration: Callable[[], dict[str, float]]
    host: list[Tensor]
    state: dict[str, Any]


class Recovery:
    """Runs iterations, and takes back those that fail.

    An iteration that diverges is made again with steps of half the length. Where that fails too, the trouble is older
    than the iteration: it is taken back with the one before it, then with the two before it, and all of them are made
    again.

    Args:
        rollbacks: Number of divergences that are taken back, each of which halves all further steps; then the run
            stops. This costs ``min(rollbacks, KEPT)`` copies of the trained weights and of the optimizers' states, on a
            GPU's host.

    Attributes:
        step_scale: Present factor of all steps, 2^-(divergences taken back).
    """

    def __init__(self, rollbacks: int) -> None:
        if rollbacks < 0:
            raise UserError(f"rollbacks={rollbacks} must be 0 or more: set `rollbacks`.")
        self.rollbacks, self.step_scale = rollbacks, 1.0
        self._starts: list[Start] = []

    def run(
        self, method: Recoverable, number: int, iteration: Callable[[], dict[str, float]]
    ) -> dict[int, dict[str, float]]:
        """Run an iteration; returns what it and those taken back with it return, by their numbers.

        Raises:
            DivergedError: The run diverged once more than ``rollbacks``.
            UserError: Not even one sample fits the GPU's memory, or one of several ranks ran out of it.
        """
        depth = max(1, min(self.rollbacks, KEPT))
        oldest = self._starts.pop(0) if len(self._starts) == depth else None
        self._starts.append(Start(number, iteration, oldest.host if oldest else [], {}))
        made: dict[int, dict[str, float]] = {}
        at, failures = len(self._starts) - 1, 0
        while at < len(self._starts):
            start, scale = self._starts[at], self.step_scale
            self._keep(method, start)
            try:
                made[start.number] = start.iteration()
                at += 1
                continue
            except DivergedError as error:
                if 2**-self.rollbacks >= self.step_scale:
                    raise
                scale, failures = scale / 2, failures + 1
                at = max(0, len(self._starts) - failures)
                back = f" to iteration {self._starts[at].number}" if self._starts[at].number < number else ""
                said = f"Taken back{back}, steps are {scale:g} of what they were from here on: {error}"
            except torch.OutOfMemoryError as error:
                said = _smaller(method, error)
            # Here, not above: an error's traceback holds the failed iteration's tensors.
            self._restore(method, self._starts[at])
            self.step_scale = scale
            torch.cuda.empty_cache()
            rank_zero_warn(said)
        return made

    @contextmanager
    def step(self, optimizer: Optimizer, check: Callable[..., None]) -> Iterator[None]:
        """A context in which the optimizer's rates are scaled; a step after which ``check`` raises is not counted."""
        rates = [group["lr"] for group in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * self.step_scale
        hook = optimizer.register_step_post_hook(check)
        try:
            yield
        finally:
            hook.remove()
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

    def _keep(self, method: Recoverable, start: Start) -> None:
        """Keep what a divergence spoils, or of that what a full memory does.

        For a full memory these are the weights and the optimizers that ``iterate`` moves by itself, what passes move,
        the method's own state, and optimizers that have no state yet: their first step makes it, and may not fit.
        """
        if not self.rollbacks and not _may_run_out(method):
            return
        kept, run = start.state, method.run
        inner = method.inner_optimizers
        optimizers = [o for o in run.optimizers if self.rollbacks or o in inner or not o.state]
        kept["optimizers"] = [(o, _on_host(o.state_dict())) for o in optimizers]
        moved = self._moved(method)
        if not start.host:  # on a GPU's host, pinned: the GPU's memory is what is short
            pinned = method.device.type == "cuda"
            start.host = [torch.empty_like(x, device="cpu", pin_memory=pinned) for x in moved]
        for h, x in zip(start.host, moved, strict=True):
            h.copy_(x)
        method.on_save_checkpoint(kept)
        kept["scheduler"] = None if run.scheduler is None else copy.deepcopy(run.scheduler.state_dict())

    def _restore(self, method: Recoverable, start: Start) -> None:
        kept = start.state
        if not kept:
            return
        for x, h in zip(self._moved(method), start.host, strict=True):
            x.copy_(h)
        method.weights_changed()
        for optimizer, state in kept["optimizers"]:
            optimizer.load_state_dict(state)
        method.on_load_checkpoint(kept)
        if kept["scheduler"] is not None:
            method.run.scheduler.load_state_dict(kept["scheduler"])

    def _moved(self, method: Recoverable) -> list[Tensor]:
        """What is to be kept of the network: this rank's part of trainable parameters, and what passes update."""
        assert method.network is not None, "no iteration has begun"
        parameters = trainable(method.network) if self.rollbacks or method.moves_parameters else []
        return [local(x.detach()) for x in (*parameters, *running_statistics(method.network))]


def _may_run_out(method: Recoverable) -> bool:
    """Whether an iteration may be made again for a full memory: torch tells of a GPU's, and ranks stop at it."""
    return method.device.type == "cuda" and method.run.ranks.size == 1


def _on_host(state: dict[str, Any]) -> dict[str, Any]:
    """A copy of an optimizer's state outside the GPU's memory."""
    by_parameter = {
        i: {k: x.to("cpu", copy=True) if isinstance(x, Tensor) else x for k, x in values.items()}
        for i, values in state["state"].items()
    }
    return {"state": by_parameter, "param_groups": copy.deepcopy(state["param_groups"])}


def _smaller(method: Recoverable, error: Exception) -> str:
    """Halve the method's micro-batches, and return a sentence that says so."""
    ranks = method.run.ranks
    size = method.micro_batch_size or -(-method.run.data.batch_size // ranks.size)
    first = str(error).split(". ")[0]
    if ranks.size > 1:
        raise UserError(
            f"Rank {ranks.rank} ran out of memory ({first}): set `micro_batch_size={size // 2 or 1}`, "
            "on which all ranks must agree."
        ) from error
    if size == 1:
        raise UserError(
            f"Not even one sample fits the memory ({first}): set `activation_checkpointing=true`, "
            "`engine=finite_difference`, or cut the model among GPUs (configs/hardware/fsdp2_4xh100.yaml)."
        ) from error
    method.micro_batch_size = size // 2
    return f"Out of memory ({first}): from here on micro-batches of {size // 2} samples instead of {size}, same result."
