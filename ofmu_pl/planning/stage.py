"""What a rehearsal takes place on: a trainer of processes that are not there, and data or rows that stand in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.planning.processes import Processes
from ofmu_pl.support.errors import NotAtHand


def trainer_of(settings: Mapping[str, Any], strategy: Any, processes: Processes, **given: Any) -> pl.Trainer:
    """A trainer on the CPU that shows and writes nothing, whose other processes are never started.

    Args:
        settings: The trainer's configuration.
        strategy: Its strategy, made into an object where it is a class; ``None``: as the processes have it.
        processes: The processes of the run.
        given: Further options.
    """
    nodes = int(settings.get("num_nodes") or 1)
    if strategy is None and processes.sharded:
        strategy = ModelParallelStrategy(data_parallel_size=processes.size, tensor_parallel_size=1)
    return pl.Trainer(
        accelerator="cpu",
        devices=processes.size // nodes,
        num_nodes=nodes,
        strategy=strategy or "auto",
        max_steps=int(settings.get("max_steps") or -1),
        max_epochs=-1,
        limit_val_batches=0,
        plugins=[_Nowhere()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **given,
    )


def set_up(data: PairedDataModule, *, blank: bool = False) -> str:
    """Set data up, or blank rows in its place where it would have to be downloaded; returns what it is.

    Args:
        data: The data module.
        blank: Whether blank rows are wanted.

    Raises:
        UserError: The data is at hand and wrong.
    """
    try:
        if blank:
            raise NotAtHand("they are not read")
        data.setup("fit")
    except NotAtHand as missing:
        data.blank()
        tokens = getattr(data, "max_length", None)
        rows = f"rows of {tokens} tokens" if tokens else "images of its size"
        return f"{data.name}: STAND-IN, blank {rows} ({missing})"
    sizes = ", ".join(f"{len(data.splits[name])} {name}" for name in data.streams)
    return f"{data.name}: {sizes} rows"


class _Nowhere(LightningEnvironment):
    """Lightning's own environment, whose first process is this one and whose others are not there."""

    creates_processes_externally = True  # so that none is started
