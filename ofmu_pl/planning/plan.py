"""What a run would take, before anything is loaded: parameters, memory of each GPU, gradients, and where it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.planning.rehearsal import Processes, Rehearsed, rehearse
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.parallel import cut_layers, no_float64, unknown_strategy
from ofmu_pl.training.run import precision_name

GPUS = (24, 40, 80, 141)
"""Memory of common GPUs in GB, 10^9 bytes: RTX 4090 and A10; A100; A100 and H100; H200."""
SLACK = 1.1
"""What an allocator, CUDA's context and workspaces inside kernels may take on top."""
AUTO = (None, "auto", -1, "-1")
"""Numbers of devices that only a machine knows."""
ROWS = {
    "parameters": "parameters",
    "vectors": "gradients, engine's vectors",
    "optimizer": "optimizer",
    "activations": "graphs of a micro-batch",
    "gathered": "layers whole under FSDP2",
    "copies": "frozen or further copies",
}


@dataclass
class Plan:
    """A run's needs and what they rest on.

    Attributes:
        title: Method, engine and processes.
        needs: What an iteration takes.
        assumption: Sizes that were taken for rows not yet read.
    """

    title: str
    needs: Rehearsed
    assumption: str

    @property
    def worst(self) -> float:
        """Bytes of one process at the worst moment of the run, what evaluations score left out."""
        return max(self.needs.total, self.needs.evaluation)

    def fits(self, gigabytes: float) -> str:
        """``yes``, ``tight`` (without the slack) or ``no``."""
        need = self.worst / 1e9
        return "yes" if need * SLACK <= gigabytes else "tight" if need <= gigabytes else "no"


def plan(module: UnlearningModule, data: PairedDataModule, trainer: Mapping[str, Any]) -> Plan:
    """Work out a run's needs on the meta device.

    Args:
        module: The method; of no use afterwards.
        data: Its data module, not set up; likewise.
        trainer: The trainer's configuration, its strategy not made into an object.

    Raises:
        UserError: What the run would refuse.
    """
    processes = processes_of(trainer)
    batch = data.batch_size
    needs = rehearse(
        module,
        data,
        processes,
        precision=precision_name(trainer.get("precision")),
        max_steps=int(trainer.get("max_steps") or -1),
        gpu=trainer.get("accelerator") != "cpu",
    )
    how = "FSDP2" if processes.sharded else "DDP"
    engine = getattr(module, "engine_name", None)
    title = type(module).__name__ + (f" ({engine})" if engine else "")
    title += f", {processes.size} processes by {how}" if processes.size > 1 else ", one process"
    rows = -(-batch // processes.size)
    rows = min(rows, module.micro_batch_size or rows)
    tokens = getattr(data, "row_tokens", None)
    kind = f"rows of {tokens} tokens, all with a loss" if tokens else "images"
    assumption = f"Assumes batches of {batch} {kind}; {rows} at a time on each process."
    if trainer.get("devices") in AUTO and str(trainer.get("strategy")).lower().startswith("ddp"):
        assumption += " Devices are auto, taken as one: say with --trainer.devices how many the run has."
    return Plan(title, needs, assumption)


def processes_of(trainer: Mapping[str, Any]) -> Processes:
    """How many processes a trainer's configuration starts, and how they share; ``auto`` devices are taken as one.

    Raises:
        UserError: Devices that are no number or none, or a strategy that runs refuse too.
    """
    devices, nodes = trainer.get("devices", "auto"), int(trainer.get("num_nodes", 1))
    if isinstance(devices, str) and "," in devices:
        devices = [word for word in devices.split(",") if word.strip()]
    if isinstance(devices, list):
        devices = len(devices)
    try:
        each = 1 if devices in AUTO else int(devices)
    except ValueError:
        each = 0
    if each < 1:
        raise UserError(
            f"--trainer.devices takes a number, a list of numbers or auto, not '{devices}': say how many the run has."
        )
    if nodes < 1:
        raise UserError(f"A run has one node or more, not {nodes}: set --trainer.num_nodes.")
    strategy = trainer.get("strategy") or "auto"
    name = strategy if isinstance(strategy, str) else str(strategy["class_path"]).rsplit(".", 1)[-1]
    if name == "ModelParallelStrategy":
        options = {} if isinstance(strategy, str) else strategy.get("init_args") or {}
        layers = options.get("tensor_parallel_size", "auto")
        if (each if layers == "auto" else layers) > 1:
            raise cut_layers()
        shares = options.get("data_parallel_size", "auto")
        shares = nodes if shares == "auto" else shares  # as Lightning has it
        if shares != each * nodes:
            raise UserError(
                f"The strategy's data_parallel_size is {shares}, and the run has {each * nodes} processes: set it, or "
                "--trainer.devices and --trainer.num_nodes, so that both are the same number."
            )
        if precision_name(trainer.get("precision")) == "64-true":
            raise no_float64()
        return Processes(each * nodes, sharded=True)
    if not (name == "auto" or name.lower().startswith("ddp")):
        if name == "SingleDeviceStrategy":
            return Processes()
        raise unknown_strategy(name)
    return Processes(each * nodes)


def show(plan: Plan, console: Console) -> None:
    """Print a plan as a table."""
    needs = plan.needs
    table = Table(title=plan.title, title_justify="left", show_header=False, min_width=60)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("parameters, trained / all", f"{count(needs.trained)} / {count(needs.parameters)}")
    work = "by the data's size" if needs.gradients is None else f"{needs.gradients:g}"
    table.add_row("gradients an iteration", work, end_section=True)
    for kind, label in ROWS.items():
        if needs.memory[kind] >= 1:
            table.add_row(label, _bytes(needs.memory[kind]))
    table.add_row("[bold]peak of each GPU[/bold]", f"[bold]{_bytes(needs.total)}[/bold]")
    if needs.evaluation:
        table.add_row("while a copy is evaluated", _bytes(needs.evaluation))
    table.add_section()
    table.add_row(f"fits {' / '.join(map(str, GPUS))} GB", " / ".join(map(plan.fits, GPUS)))
    console.print(table)
    console.print(plan.assumption)
    console.print(
        f"Counted without weights, not measured on a GPU; 'yes' leaves {SLACK - 1:.0%} for allocator, CUDA and "
        "workspaces. What evaluations generate is not in it."
    )


def count(n: int) -> str:
    """A number of parameters, in millions or billions."""
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.2f} M"


def _bytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"
