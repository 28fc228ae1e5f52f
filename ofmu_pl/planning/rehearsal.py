"""One outer iteration on the meta device: the method's own code on blank data and a network without weights.

Nothing here knows a method's memory by a formula: ``outer_step`` runs, its storages are counted, and the network,
its losses, the engine and the optimizer are those of a real run. Only what several processes do is put in by hand, from
how DDP and FSDP2 work.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.ranks import Ranks
from ofmu_pl.core.vectors import Vector, zeros_like
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.modules.one_shot import OneShot
from ofmu_pl.planning.ledger import Kernels, Ledger
from ofmu_pl.planning.stand_ins import Graphs, Unloaded, Watching, know_losses
from ofmu_pl.training.run import Run

ENOUGH_PAIRS = 2
"""One inner step and the outer one, where memory peaks: for engines whose iterations take long even without numbers."""


@dataclass(frozen=True)
class Processes:
    """The processes that share a batch.

    Attributes:
        size: Number of processes, one per GPU.
        sharded: FSDP2: parameters, vectors and optimizer state are cut among them. Else DDP, or one process.
    """

    size: int = 1
    sharded: bool = False


@dataclass
class Rehearsed:
    """The memory and work of an iteration.

    Attributes:
        trained: Parameters that are trained.
        parameters: All parameters.
        memory: Bytes of one process at the worst moment, by kind (``ledger.KINDS``).
        evaluation: Bytes of one process while an evaluation looks at a whole copy of what is sharded, without what
            it scores; 0 where nothing is copied.
        gradients: Mean gradient evaluations of an outer iteration; ``None`` where they depend on the size of the data.
    """

    trained: int
    parameters: int
    memory: dict[str, float]
    evaluation: float
    gradients: float | None

    @property
    def total(self) -> float:
        """Bytes of one process at the worst moment."""
        return sum(self.memory.values())


def rehearse(
    module: UnlearningModule,
    data: Any,
    processes: Processes,
    *,
    precision: str = "32-true",
    max_steps: int = -1,
    gpu: bool = True,
) -> Rehearsed:
    """Run an iteration of a method on the meta device.

    Args:
        module: The method before it was given to any trainer; of no use afterwards.
        data: Its data module, not set up.
        processes: The processes that share the batches.
        precision: Lightning's name of the precision.
        max_steps: Length of the run.
        gpu: Whether the optimizer takes all parameters at a time, as torch's do on GPUs.

    Raises:
        UserError: What a run would refuse before its first step.
    """
    data.blank()
    exact, n = module.exact, processes.size
    cut = processes.sharded and not exact  # the exact engine works on a whole copy
    ledger = Ledger(n, ("parameters", "vectors", "optimizer") if cut else ("optimizer",) if processes.sharded else ())
    real = module.recipe
    module.recipe = recipe = Unloaded(real, ledger, saving=module.num_batches > 1, exact=exact)
    run = module.run = Run(data, Ranks(0, n, processes.sharded), precision, max_steps, checks_itself=False)
    module.to("meta")
    module.configure_model()
    network = run.convert(module.trained)
    parameters = trainable(network)
    size = sum(p.numel() * p.element_size() for p in parameters)
    ledger.add(network.state_dict(keep_vars=True).values(), "parameters")
    ledger.change("parameters", -quantized(real, network))

    module.configure_optimizers()
    for optimizer in run.optimizers:
        if hasattr(optimizer, "is_paged"):
            optimizer.is_paged = False  # paged state is on the GPU when it is needed
        for group in optimizer.param_groups:
            if gpu and "foreach" in group and not group.get("fused"):
                group["foreach"] = True
    run.ranks = Watching(0, n, cut, ledger=ledger, gathered=gathered(network) if cut else 0)
    if processes.sharded and exact:
        ledger.change("copies", 2 * size / n)  # shards of parameters and gradient, beside what is whole
    elif n > 1 and not processes.sharded:
        ledger.change("copies", size)  # DDP's buckets

    know_losses(module, data)
    if module.micro_batch_size is not None:
        data.batch_size = min(data.batch_size, 2 * n * module.micro_batch_size)  # further terms are like the second
    autocast = precision == "bf16-mixed"
    if getattr(real, "activation_checkpointing", False):  # torch leaves function modes when it recomputes
        again: Any = network
        again.gradient_checkpointing_enable(
            {"use_reentrant": False, "context_fn": lambda: (nullcontext(), Kernels(autocast))}
        )
    with ledger, Kernels(autocast), Graphs(ledger) if exact else nullcontext():
        for optimizer in run.optimizers:
            _count_steps(optimizer, ledger)
            _step(optimizer, zeros_like(parameters))  # makes its state
        module.on_train_start()
        batch = data.iteration(0)
        for parts in batch.values():
            for part in parts:  # what losses index by stays: its numbers matter
                part |= {k: x.to("meta", parameters[0].dtype) for k, x in part.items() if x.is_floating_point()}
        # Of the whole iterations the first after the run's last has every part in use (``higher_order_from``).
        first = module.period * math.ceil(max(max_steps, 0) / module.period) + 1
        few = {stream: parts[-ENOUGH_PAIRS:] for stream, parts in batch.items()} if exact else batch
        before = module.gradient_evaluations
        module.outer_step(few, first, epoch_ends=True)
        if exact and module.num_batches > ENOUGH_PAIRS:
            before, recipe.real = module.gradient_evaluations, False  # only to count the work
            module.outer_step(batch, first, epoch_ends=True)
        work = module.gradient_evaluations - before
        if module.period > 1:  # the iterations between two whole ones are alike, and smaller
            recipe.real = False
            module.outer_step(batch, first + 1, epoch_ends=True)
            light = module.gradient_evaluations - before - work
            work = (work + (module.period - 1) * light) / module.period
    every = list(network.parameters())
    whole = sum(p.numel() * p.element_size() for p in every)
    return Rehearsed(
        trained=sum(p.numel() for p in parameters),
        parameters=sum(p.numel() for p in every),
        memory=ledger.peak,
        evaluation=whole + ledger.live["parameters"] + ledger.live["optimizer"] if cut else 0.0,
        gradients=None if isinstance(module, OneShot) and work else work,
    )


def _step(optimizer: Optimizer, gradient: Vector) -> None:
    """One step of an optimizer over all parameters."""
    for p, g in zip((p for group in optimizer.param_groups for p in group["params"]), gradient, strict=True):
        p.grad = g
    optimizer.step()
    optimizer.zero_grad()


def _count_steps(optimizer: Optimizer, ledger: Ledger) -> None:
    """Count what a step makes on its way as the optimizer's, from here on."""
    before = ledger.kind
    optimizer.register_step_pre_hook(lambda *_: setattr(ledger, "kind", "optimizer"))
    optimizer.register_step_post_hook(lambda *_: setattr(ledger, "kind", before))


def gathered(network: nn.Module) -> float:
    """Bytes that FSDP2 holds whole at most, cut as ``parallel.shard`` does.

    The root's parameters (embedding and head) from the forward pass to the end of the backward pass with their
    gradients; of the largest layer its parameters and the next one's beside it, its gradients, and the buffer that
    reduces them.
    """
    layers = [layer for m in network.modules() if isinstance(m, nn.ModuleList) for layer in m]
    sizes = [sum(p.numel() * p.element_size() for p in layer.parameters()) for layer in layers]
    whole = sum(p.numel() * p.element_size() for p in network.parameters())
    return 2 * (whole - sum(sizes)) + 4 * max(sizes, default=0)


def quantized(recipe: Any, network: nn.Module) -> float:
    """Bytes that 4-bit weights save: 4 bits and, for every 64 of them, a float32 instead of float32 each."""
    if not getattr(recipe, "load_in_4bit", False):
        return 0.0
    frozen = [
        m.weight
        for name, m in network.named_modules()
        if isinstance(m, nn.Linear) and not m.weight.requires_grad and not name.endswith("lm_head")
    ]
    return sum(w.numel() * (4 - 0.5 - 4 / 64) for w in frozen)
