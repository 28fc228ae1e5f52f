"""A trainer on scikit-learn's digits, for tests of image methods."""

import torch
from lightning.pytorch import Trainer

from ofmu_pl.data import Digits
from ofmu_pl.networks import SmallCNN


def train_on_digits(module, steps=2, order=0, ckpt_path=None, callbacks=(), **data):
    """Run a method, its network initialised alike each time, its batches drawn by ``order``; returns the trainer."""
    options = {"forget_classes": [0], "train_items": 400, "batch_size": 16} | data
    digits = Digits(streams=module.streams, pairs=module.pairs, seed=order, **options)
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        max_epochs=-1,
        logger=False,
        callbacks=list(callbacks),
        enable_checkpointing=bool(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    torch.manual_seed(0)
    trainer.fit(module, datamodule=digits, ckpt_path=ckpt_path)
    return trainer


def network(**options):
    return SmallCNN(width=8, **options)
