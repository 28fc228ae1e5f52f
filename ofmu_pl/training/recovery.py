"""Makes an iteration again on smaller micro-batches, with the same result, where a GPU's memory is full."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import running_statistics, trainable
from ofmu_pl.core.vectors import local
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.run import Run


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


def within_memory(method: Recoverable, iteration: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Run an iteration; where a GPU's memory is full, take it back, and make it again on half the micro-batches.

    Args:
        method: The method whose iteration it is.
        iteration: Makes the iteration, with its batches.

    Returns:
        What the iteration returns.

    Raises:
        UserError: Not even one sample fits the GPU's memory, or one of several ranks ran out of it.
    """
    while True:
        start = _state(method) if _may_run_out(method) else None
        try:
            return iteration()
        except torch.OutOfMemoryError as error:
            said = _smaller(method, error)
        # Here, not above: an error's traceback holds the failed iteration's tensors.
        if start is not None:
            _restore(method, start)
        del start
        torch.cuda.empty_cache()
        rank_zero_warn(said)


def _state(method: Recoverable) -> dict[str, Any]:
    """What an iteration changes before the first optimizer's step, kept outside the GPU's memory.

    These are the weights and the optimizers that ``iterate`` moves by itself, what passes move, the method's own state,
    and optimizers that have no state yet: their first step makes it, and may not fit.
    """
    run, inner = method.run, method.inner_optimizers
    start: dict[str, Any] = {"moved": []}
    for x in _moved(method):  # on a GPU's host, pinned: the GPU's memory is what is short
        start["moved"].append(torch.empty_like(x, device="cpu", pin_memory=method.device.type == "cuda").copy_(x))
    start["optimizers"] = [(o, _on_host(o.state_dict())) for o in run.optimizers if o in inner or not o.state]
    start["scheduler"] = None if run.scheduler is None else copy.deepcopy(run.scheduler.state_dict())
    method.on_save_checkpoint(start)
    return start


def _restore(method: Recoverable, start: dict[str, Any]) -> None:
    for x, kept in zip(_moved(method), start["moved"], strict=True):
        x.copy_(kept)
    method.weights_changed()
    for optimizer, state in start["optimizers"]:
        optimizer.load_state_dict(state)
    method.on_load_checkpoint(start)
    if start["scheduler"] is not None:
        method.run.scheduler.load_state_dict(start["scheduler"])


def _moved(method: Recoverable) -> list[Tensor]:
    """This rank's part of the parameters that an iteration moves, and what passes update."""
    assert method.network is not None, "no iteration has begun"
    parameters = trainable(method.network) if method.moves_parameters else []
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
