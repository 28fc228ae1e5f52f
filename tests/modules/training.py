"""A trainer on the generated corpus, for tests of methods."""

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl.data import Authors

TINY = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def train(module, steps=2, callbacks=(), ckpt_path=None, precision="32-true", **data):
    data = Authors(authors=4, forget_authors=1, batch_size=4, streams=module.streams, pairs=module.pairs, **data)
    return fit(module, data, steps, callbacks, ckpt_path, precision)


def fit(module, data, steps, callbacks=(), ckpt_path=None, precision="32-true"):
    """Run a method quietly, its network initialised alike each time; returns the trainer."""
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        precision=precision,
        max_epochs=-1,
        logger=False,
        callbacks=list(callbacks),
        enable_checkpointing=any(isinstance(c, ModelCheckpoint) for c in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    torch.manual_seed(0)
    trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
    return trainer


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.network.parameters()])
