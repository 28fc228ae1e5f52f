"""A network cut among the ranks of a test, as a run cuts it."""

import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def shard(network):
    """Each layer of a stack by itself, then the rest; returns the network."""
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for part in network.modules():
        if isinstance(part, nn.ModuleList):
            for layer in part:
                fully_shard(layer, mesh=mesh)
    return fully_shard(network, mesh=mesh)
