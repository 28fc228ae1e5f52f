"""How many processes a trainer's configuration starts, and how they share a batch."""

from collections.abc import Mapping
from typing import Any

from ofmu_pl.core.ranks import Ranks
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.parallel import CUT_LAYERS, NO_FLOAT64, unknown_strategy
from ofmu_pl.training.run import precision_name

AUTO = (None, "auto", -1, "-1")  # numbers of devices that only a machine knows
Settings = Mapping[str, Any]  # a trainer's configuration


def ranks_in(trainer: Settings) -> Ranks:
    """The first of the processes that a trainer's configuration starts; ``auto`` devices are taken as one.

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
        raise UserError(f"--trainer.devices takes a number, a list or auto, not '{devices}': say how many the run has.")
    if nodes < 1:
        raise UserError(f"A run has one node or more, not {nodes}: set --trainer.num_nodes.")
    strategy = trainer.get("strategy") or "auto"
    name = strategy if isinstance(strategy, str) else str(strategy["class_path"]).rsplit(".", 1)[-1]
    if name == "ModelParallelStrategy":
        options = {} if isinstance(strategy, str) else strategy.get("init_args") or {}
        layers = options.get("tensor_parallel_size", "auto")
        if (each if layers == "auto" else layers) > 1:
            raise UserError(CUT_LAYERS)
        shares = options.get("data_parallel_size", "auto")
        shares = nodes if shares == "auto" else shares  # as Lightning has it
        if shares != each * nodes:
            raise UserError(
                f"The strategy's data_parallel_size is {shares}, and the run has {each * nodes} processes: set it, or "
                "--trainer.devices and --trainer.num_nodes, so that both are the same number."
            )
        if precision_name(trainer.get("precision")) == "64-true":
            raise UserError(NO_FLOAT64)
        return Ranks(size=each * nodes, sharded=True)
    if name == "SingleDeviceStrategy":
        return Ranks()
    if not (name == "auto" or name.lower().startswith("ddp")):
        raise unknown_strategy(name)
    return Ranks(size=each * nodes)
