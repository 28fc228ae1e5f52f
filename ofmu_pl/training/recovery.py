"""What an iteration does when it fails: a smaller step after a divergence, smaller micro-batches on a full GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import local
from ofmu_pl.support.errors import DivergedError, UserError

KEPT = 3
"""Iterations that can be taken back together."""


@dataclass
class Start:
    """What an iteration began with.

    Attributes:
        number: Of the iteration, from 1.
        iteration: Makes it, with its batches.
        host: Weights outside a GPU's memory.
        state: Of optimizers, scheduler and method.
    """

    number: int
    iteration: Callable[[], dict[str, float]]
    host: list[Tensor]
    state: dict[str, Any]


class Recovery:
    """Runs iterations, and takes back those that fail.

    An iteration that diverges is made again with half the steps. Where that fails too, the trouble is older than the
    iteration: it is taken back with the one before it, then with the two before it, and all of them are made again.

    Args:
        rollbacks: How many divergences are taken back, each of which halves all further steps; then the run stops.
            Costs ``min(rollbacks, KEPT)`` copies of the trained weights and of the optimizers' states, on a GPU's host.

    Attributes:
        step_scale: What steps are multiplied by now: 2^-(divergences taken back).
    """

    def __init__(self, rollbacks: int) -> None:
        if rollbacks < 0:
            raise UserError(f"rollbacks={rollbacks} must be 0 or more: set --model.rollbacks.")
        self.rollbacks, self.step_scale = rollbacks, 1.0
        self._starts: list[Start] = []

    def run(self, module: Any, number: int, iteration: Callable[[], dict[str, float]]) -> dict[int, dict[str, float]]:
        """What the iteration returns, by its number, and what those return that are taken back with it.

        Raises:
            DivergedError: It diverged once more than ``rollbacks``.
            UserError: Not even one sample fits the GPU's memory, or one of several ranks ran out of it.
        """
        depth = max(1, min(self.rollbacks, KEPT))
        oldest = self._starts.pop(0) if len(self._starts) == depth else None
        self._starts.append(Start(number, iteration, oldest.host if oldest else [], {}))
        made: dict[int, dict[str, float]] = {}
        at, failures = len(self._starts) - 1, 0
        while at < len(self._starts):
            start, scale = self._starts[at], self.step_scale
            self._keep(module, start)
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
                said = _smaller(module, error)
            # Here, not above: an error's traceback holds the failed iteration's tensors.
            self._restore(module, self._starts[at])
            self.step_scale = scale
            torch.cuda.empty_cache()
            rank_zero_warn(said)
        return made

    @contextmanager
    def step(self, optimizer: Optimizer, check: Callable[..., None]) -> Iterator[None]:
        """In which the optimizer's rates are scaled, and a step that ``check`` raises after is not counted."""
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

    def _keep(self, module: Any, start: Start) -> None:
        """Weights and states: of all optimizers for a divergence, for a full memory of those ``iterate`` steps."""
        kept, device = start.state, module.device.type
        if self.rollbacks or (device == "cuda" and module.moves_parameters):
            optimizers = module.every_optimizer[0 if self.rollbacks else 1 :]
            kept["optimizers"] = [(o.optimizer, _on_host(o.optimizer.state_dict())) for o in optimizers]
            parameters = [local(p.detach()) for p in trainable(module.network)]
            if not start.host:  # on a GPU's host, pinned: the GPU's memory is what is short
                start.host = [torch.empty_like(p, device="cpu", pin_memory=device == "cuda") for p in parameters]
            for h, p in zip(start.host, parameters, strict=True):
                h.copy_(p)
        if self.rollbacks:
            module.on_save_checkpoint(kept)
            scheduler = module.lr_schedulers()
            kept["scheduler"] = None if scheduler is None else copy.deepcopy(scheduler.state_dict())

    def _restore(self, module: Any, start: Start) -> None:
        kept = start.state
        if start.host:
            with torch.no_grad():
                for p, h in zip(trainable(module.network), start.host, strict=True):
                    local(p.detach()).copy_(h)
            module.weights_changed()
        for optimizer, state in kept.get("optimizers", []):
            optimizer.load_state_dict(state)
        if self.rollbacks:
            module.on_load_checkpoint(kept)
            if kept["scheduler"] is not None:
                module.lr_schedulers().load_state_dict(kept["scheduler"])


def _on_host(state: dict[str, Any]) -> dict[str, Any]:
    """A copy of an optimizer's state outside the GPU's memory."""
    by_parameter = {
        i: {k: x.to("cpu", copy=True) if isinstance(x, Tensor) else x for k, x in values.items()}
        for i, values in state["state"].items()
    }
    return {"state": by_parameter, "param_groups": copy.deepcopy(state["param_groups"])}


def _smaller(module: Any, error: Exception) -> str:
    """Halve the module's micro-batches; says so."""
    size = module.micro_batch_size or -(-module._data.batch_size // module.ranks.size)
    first = str(error).split(". ")[0]
    if module.ranks.size > 1:
        raise UserError(
            f"Rank {module.ranks.rank} ran out of memory ({first}): set --model.micro_batch_size to {size // 2 or 1}, "
            "on which all ranks must agree."
        ) from error
    if size == 1:
        raise UserError(
            f"Not even one sample fits the memory ({first}): set --model.network.activation_checkpointing true, "
            "--model.engine finite_difference, or cut the model among GPUs (configs/hardware/fsdp2_4xh100.yaml)."
        ) from error
    module.micro_batch_size = size // 2
    return f"Out of memory ({first}): from here on micro-batches of {size // 2} samples instead of {size}, same result."
