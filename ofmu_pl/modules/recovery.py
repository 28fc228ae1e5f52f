"""What an iteration does when it fails: a smaller step after a divergence, smaller micro-batches on a full GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import local
from ofmu_pl.errors import DivergedError, UserError

Result = TypeVar("Result")


class Recovery:
    """Runs iterations, and takes back those that fail.

    Args:
        rollbacks: How many divergences are taken back, each of which halves all further steps; then the run stops.

    Attributes:
        step_scale: What steps are multiplied by now: 2^-(divergences taken back).
    """

    def __init__(self, rollbacks: int) -> None:
        if rollbacks < 0:
            raise UserError(f"rollbacks={rollbacks} must be 0 or more: set --model.rollbacks.")
        self.rollbacks, self.step_scale = rollbacks, 1.0
        self._host: list[Tensor] = []

    def run(self, module: Any, iteration: Callable[[], Result]) -> Result:
        """The iteration's result, from the state before it as often as it takes.

        Raises:
            DivergedError: It diverged once more than ``rollbacks``.
            UserError: Not even one sample fits the GPU's memory, or one of several ranks ran out of it.
        """
        state = self._keep(module)
        while True:
            scale = self.step_scale
            try:
                return iteration()
            except DivergedError as error:
                if 2**-self.rollbacks >= self.step_scale:
                    raise
                scale /= 2
                said = f"Taken back, steps are {scale:g} of what they were from here on: {error}"
            except torch.OutOfMemoryError as error:
                said = _smaller(module, error)
            # Here, not above: an error's traceback holds the failed iteration's tensors.
            self._restore(module, state)
            self.step_scale = scale
            torch.cuda.empty_cache()
            rank_zero_warn(said)

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

    def _keep(self, module: Any) -> dict[str, Any]:
        """Weights, and states of optimizers: of all for a divergence, for a full memory of those ``iterate`` steps."""
        kept: dict[str, Any] = {}
        device = module.device.type
        if self.rollbacks or (device == "cuda" and module.moves_parameters):
            optimizers = module.every_optimizer[0 if self.rollbacks else 1 :]
            kept["optimizers"] = [(o.optimizer, _on_host(o.optimizer.state_dict())) for o in optimizers]
            parameters = [local(p.detach()) for p in trainable(module.network)]
            if not self._host:  # on a GPU's host, pinned: the GPU's memory is what is short
                self._host = [torch.empty_like(p, device="cpu", pin_memory=device == "cuda") for p in parameters]
            for h, p in zip(self._host, parameters, strict=True):
                h.copy_(p)
        if self.rollbacks:
            module.on_save_checkpoint(kept)
        return kept

    def _restore(self, module: Any, kept: dict[str, Any]) -> None:
        if self._host:
            with torch.no_grad():
                for p, h in zip(trainable(module.network), self._host, strict=True):
                    local(p.detach()).copy_(h)
            module.weights_changed()
        for optimizer, state in kept.get("optimizers", []):
            optimizer.load_state_dict(state)
        if self.rollbacks:
            module.on_load_checkpoint(kept)


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
