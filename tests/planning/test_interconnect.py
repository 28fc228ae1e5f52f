"""What FSDP2's ranks send each other for one gradient, against the formula of docs/hardware.md."""

from unittest import mock

import pytest
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ofmu_pl.data import Authors
from ofmu_pl.networks import CausalLM
from ofmu_pl.planning.ledger import Ledger
from ofmu_pl.planning.unreal import pretended, unreal
from ofmu_pl.training.parallel import shard
from tests.helpers.training import TINY

RANKS = 8
LLAMA = TINY | {"num_hidden_layers": 3, "vocab_size": 1024}  # rows of every matrix divide among the ranks


class Sent(TorchDispatchMode):
    """Bytes of whole tensors that are gathered, and of those that are reduced into shards."""

    def __init__(self):
        super().__init__()
        self.bytes = {"gathered": 0, "reduced": 0}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            kind = {"_allgather_base_": "gathered", "_reduce_scatter_base_": "reduced"}[func.overloadpacket.__name__]
            tensors = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
            self.bytes[kind] += max(x.nbytes for x in tensors)
        return func(*args, **kwargs or {})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_checkpointing": True},
        {"activation_checkpointing": True, "lora": {"r": 8}, "base_dtype": "bfloat16"},
    ],
)
def test_a_gradient_gathers_layers_twice_and_the_rest_once(options):
    data = Authors(authors=4, forget_authors=1, batch_size=2)
    data.setup()
    recipe = CausalLM(config=LLAMA, **options)
    batch = data.iteration(0)["forget"][0]
    with pretended(Ledger(), RANKS):
        network = unreal(recipe.skeleton(data, exact=False))
        strategy = mock.create_autospec(ModelParallelStrategy, instance=True)
        strategy.device_mesh = {"data_parallel": init_device_mesh("cpu", (RANKS,))}
        every = dict(network.named_parameters())
        layers = sum(p.nbytes for name, p in every.items() if ".layers." in name)
        rest = sum(p.nbytes for name, p in every.items() if ".layers." not in name)
        trained = sum(p.nbytes for p in every.values() if p.requires_grad)
        shard(network, strategy)
        with Sent() as sent:
            recipe.sample_losses(network, batch).mean().backward()
    assert sent.bytes == {"gathered": 2 * layers + rest, "reduced": trained}
