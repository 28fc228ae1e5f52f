"""Forward passes of a network in shards without gradients, of which every rank makes a number of its own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from ofmu_pl.training.parallel import reshard

SHARE = 0.5
"""Share of a device's free memory that a whole network may take: what is left holds caches, logits and activations."""


@contextmanager
def together(network: nn.Module, blank: Callable[[], object]) -> Iterator[None]:
    """A context without gradients in which each rank scores rows of its own; of a network in shards it takes all ranks.

    FSDP2 gathers a layer from all ranks whenever one of them reads it. Where the whole network takes at most half of
    the memory that is free (``fits``), it is gathered once, and passes then need no other rank. Otherwise each layer is
    gathered for each pass, and a rank that is through with its rows makes blank passes until all are. The ranks must
    not exchange anything else within the context, and only the network itself may be called, not a part of it.

    Args:
        network: A network in shards; around any other, gradients are off, and that is all.
        blank: Makes the least pass that reads all layers.
    """
    shards = [module for module in network.modules() if isinstance(module, FSDPModule)]
    if not shards:
        way: AbstractContextManager[None] = nullcontext()
    elif fits(network):
        way = _gathered(shards)
    else:
        way = _in_step(network, blank)
    try:
        with torch.no_grad(), way:
            yield
    finally:
        reshard(network)


def one_token(model: PreTrainedModel) -> Callable[[], object]:
    """The least pass of a language model, for ranks that must make one and have no row."""
    return partial(model, input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), use_cache=False)


def fits(network: nn.Module) -> bool:
    """Whether a network in shards takes at most ``SHARE`` of the free memory of every rank's device (takes all ranks).

    Ranks on CPUs are taken to share one host.
    """
    parameters = list(network.parameters())
    device, size = parameters[0].device, sum(p.numel() * p.element_size() for p in parameters)
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + cached
    else:
        free = psutil.virtual_memory().available / dist.get_world_size()
    agreed = torch.tensor(size <= SHARE * free, dtype=torch.int32, device=device)
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    return bool(agreed)


@contextmanager
def _gathered(shards: Sequence[FSDPModule]) -> Iterator[None]:
    """Hold the whole network; the root, which comes first, is never cut after a pass."""
    for module in shards[1:]:
        module.set_reshard_after_forward(False, recurse=False)
    for module in shards:
        module.unshard()
    try:
        yield
    finally:
        for module in shards[1:]:
            module.set_reshard_after_forward(True, recurse=False)


@contextmanager
def _in_step(network: nn.Module, blank: Callable[[], object]) -> Iterator[None]:
    """Before each pass the ranks add up how many of them make one of their own; at 0 all are through."""
    passing = torch.zeros((), dtype=torch.int32, device=next(network.parameters()).device)

    def announce(*_: object) -> None:
        dist.all_reduce(passing.fill_(1))  # nobody waits for the sum here, so that a GPU need not either

    with network.register_forward_pre_hook(announce, prepend=True):
        yield
    while True:
        dist.all_reduce(passing.fill_(0))
        if not passing:
            return
        blank()
