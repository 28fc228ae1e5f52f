"""From one device to many: Lightning's DDP, and FSDP2 by its ``ModelParallelStrategy``."""

from collections.abc import Callable
from functools import cached_property

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, SingleDeviceStrategy, Strategy
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ofmu_pl.core.ranks import Ranks
from ofmu_pl.core.vectors import Vector
from ofmu_pl.support.errors import UserError

CUT_LAYERS = (
    "Only batches are shared among devices here, not layers: set the strategy's data_parallel_size to the number of "
    "devices and tensor_parallel_size to 1 (its defaults are the other way round)."
)
NO_FLOAT64 = "FSDP2 shards no float64: set --trainer.precision 32-true, or --trainer.strategy ddp."


def ranks_of(strategy: Strategy) -> Ranks:
    """The ranks of a strategy, by which its processes share batches.

    Raises:
        UserError: The strategy cannot run manual optimization, or cuts layers among devices.
    """
    if isinstance(strategy, SingleDeviceStrategy):
        return Ranks()
    if not isinstance(strategy, DDPStrategy | ModelParallelStrategy):
        raise unknown_strategy(type(strategy).__name__)
    if isinstance(strategy, ModelParallelStrategy) and strategy.device_mesh["tensor_parallel"].size() > 1:
        raise UserError(CUT_LAYERS)
    return Ranks(dist.get_rank(), dist.get_world_size(), isinstance(strategy, ModelParallelStrategy))


def unknown_strategy(name: str) -> UserError:
    """The error for a strategy without manual optimization."""
    return UserError(
        f"{name} cannot run OFMU's inner and outer steps: set --trainer.strategy ddp, or FSDP2 as in "
        "configs/hardware/fsdp2_4xh100.yaml (Lightning's FSDPStrategy has no manual optimization)."
    )


def shard(network: nn.Module, strategy: Strategy) -> None:
    """Cut the parameters among ranks (FSDP2): each layer of a stack by itself, then the rest."""
    assert isinstance(strategy, ModelParallelStrategy)
    mesh = strategy.device_mesh["data_parallel"]
    for module in network.modules():
        if isinstance(module, nn.ModuleList):
            for layer in module:
                fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)


def reshard(network: nn.Module) -> None:
    """Free what FSDP2 leaves whole after a forward pass that no backward pass follows; without it, do nothing.

    Until then ``parameters()`` are whole tensors in some modules and shards in others.
    """
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def scatter_(shards: Vector, whole: Vector) -> None:
    """Write whole vectors, which are alike on every rank, into shards."""
    for s, w in zip(shards, whole, strict=True):
        s.copy_(distribute_tensor(w, s.device_mesh, s.placements, src_data_rank=None))  # type: ignore[attr-defined]


class Replica:
    """A whole copy of a sharded network on every rank, made by ``build`` when it is first asked for."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        self.build, self.stale = build, True

    @cached_property
    def network(self) -> nn.Module:
        """The copy, which may be stale."""
        return self.build()

    def of(self, sharded: nn.Module, device: torch.device) -> nn.Module:
        """The copy, brought up to date if it is stale (takes all ranks)."""
        state = self.network.to(device).state_dict()
        if self.stale:
            with torch.no_grad():
                for name, x in sharded.state_dict().items():  # one by one: all at once would be a second whole copy
                    state[name].copy_(x.full_tensor() if isinstance(x, DTensor) else x)
            self.stale = False
        return self.network
