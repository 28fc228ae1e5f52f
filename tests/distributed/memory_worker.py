"""Memory of one rank in an OFMU run: torch.distributed.run memory_worker.py STRATEGY FILE."""

import gc
import sys
from pathlib import Path

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.tensor import DTensor

from ofmu_pl.data import Authors
from ofmu_pl.modules import OFMU
from ofmu_pl.networks import CausalLM

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.helpers.training import quiet_trainer

CONFIG = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 344,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 1000,
}
"""Equal layers and a small vocabulary."""


def live_bytes():
    """Of all storages that a tensor of this process holds; of sharded ones the local part."""
    storages = {}
    for x in gc.get_objects():
        if issubclass(type(x), torch.Tensor):
            storage = (x.to_local() if isinstance(x, DTensor) else x).untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


class Sampled(CausalLM):
    """Looks at memory whenever a loss is about to be evaluated: no activations are alive then."""

    most = 0

    def sample_losses(self, module, batch):
        self.most = max(self.most, live_bytes())
        return super().sample_losses(module, batch)


def method(network=CausalLM):
    return OFMU(
        network(config=dict(CONFIG)),
        engine="finite_difference",
        inner_steps=1,
        optimizer=lambda p: torch.optim.AdamW(p, lr=1e-4),
    )


def data(module):
    return Authors(authors=4, forget_authors=1, batch_size=2, streams=module.streams, num_batches=module.num_batches)


def main(strategy, file):
    torch.set_num_threads(1)
    module = method(Sampled)
    sharded = ModelParallelStrategy(
        data_parallel_size=2, tensor_parallel_size=1, process_group_backend="gloo", save_distributed_checkpoint=False
    )
    trainer = quiet_trainer(
        2,  # in the second the optimizer has its state
        devices=1 if strategy == "one" else 2,
        strategy="auto" if strategy == "one" else sharded,
        use_distributed_sampler=False,
    )
    trainer.fit(module, datamodule=data(module))
    Path(f"{file}-{trainer.global_rank}").write_text(str(module.recipe.most))


if __name__ == "__main__":
    main(*sys.argv[1:])
