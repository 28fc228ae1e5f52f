"""Makes an iteration again on smaller micro-batches, with the same result, where a GPU's memory is full."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from lightning.pytorch.utilities import rank_zero_warn
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from ofmu_pl.core.derivatives import running_statistics, trainable
from ofmu_pl.core.ranks import Ranks
from ofmu_pl.core.vectors import local
from ofmu_pl.support.errors import UserError

Made = TypeVar("Made")


def made_to_fit(method: Any, make: Callable[[], Made], *, moves: bool) -> Made:
    """Make something, again on micro-batches of half the size whenever a GPU's memory is full.

    Args:
        method: The method (``UnlearningModule``), whose ``micro_batch_size`` is halved.
        make: Makes it.
        moves: Whether making it changes the method, which is first taken back.

    Raises:
        UserError: Not even one sample fits the memory, or one of several ranks ran out of it.
    """
    while True:
        start = state_of(method) if moves and may_run_out(method) else None
        try:
            return make()
        except torch.OutOfMemoryError as error:
            size = method.micro_batch_size or -(-method.run.data.batch_size // method.run.ranks.size)
            method.micro_batch_size = halved(size, method.run.ranks, error)
        # Here, not above: an error's traceback holds the failed iteration's tensors.
        if start is not None:
            restore(method, start)
        torch.cuda.empty_cache()


def may_run_out(method: Any) -> bool:
    """Whether an iteration can be made again after a full memory: on one GPU alone, since several ranks stop then."""
    return bool(method.device.type == "cuda" and method.run.ranks.size == 1)


def state_of(method: Any) -> dict[str, Any]:
    """What an iteration of a method changes before the first optimizer's step, kept outside the GPU's memory.

    These are the weights and the optimizers that ``iterate`` moves by itself, what passes move, the method's own state,
    and optimizers that have no state yet: their first step makes it, and may not fit.
    """
    run, inner = method.run, method.inner_optimizers
    start: dict[str, Any] = {"moved": [(x, _on_host(x)) for x in _moved(method)]}
    start["optimizers"] = [
        (o, apply_to_collection(o.state_dict(), Tensor, _on_host)) for o in run.optimizers if o in inner or not o.state
    ]
    start["scheduler"] = None if run.scheduler is None else copy.deepcopy(run.scheduler.state_dict())
    method.on_save_checkpoint(start)
    return start


def restore(method: Any, start: dict[str, Any]) -> None:
    """Take an iteration back to what ``state_of`` gave before it."""
    for x, kept in start["moved"]:
        x.copy_(kept)
    method.weights_changed()
    for optimizer, state in start["optimizers"]:
        optimizer.load_state_dict(state)
    method.on_load_checkpoint(start)
    if method.run.scheduler is not None:
        method.run.scheduler.load_state_dict(start["scheduler"])


def _on_host(x: Tensor) -> Tensor:
    """Copy a tensor to the host; from a GPU into pinned memory, which torch keeps for the next copy."""
    return torch.empty_like(x, device="cpu", pin_memory=x.is_cuda).copy_(x)


def _moved(method: Any) -> list[Tensor]:
    """This rank's part of the parameters that an iteration moves, and what passes update."""
    assert method.network is not None, "no iteration has begun"
    parameters = trainable(method.network) if method.moves_parameters else []
    return [local(x.detach()) for x in (*parameters, *running_statistics(method.network))]


def halved(size: int, ranks: Ranks, error: Exception) -> int:
    """Half of the micro-batches whose iteration filled the memory, with a warning.

    Raises:
        UserError: Not even one sample fits the memory, or one of several ranks ran out of it.
    """
    first = str(error).split(". ")[0]
    if ranks.size > 1:
        raise UserError(
            f"Rank {ranks.rank} ran out of memory ({first}): set `model.micro_batch_size={size // 2 or 1}`, "
            "on which all ranks must agree."
        ) from error
    if size == 1:
        raise UserError(
            f"Not even one sample fits the memory ({first}): set `model.network.activation_checkpointing=true`, "
            "`model.engine=finite_difference`, or cut the model among GPUs (configs/hardware/fsdp2_4xh100.yaml)."
        ) from error
    rank_zero_warn(
        f"Out of memory ({first}): from here on micro-batches of {size // 2} samples instead of {size}, same result."
    )
    return size // 2
