"""A trainer on the generated corpus, for tests of methods."""

from copy import copy
from functools import cache
from types import SimpleNamespace

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from ofmu_pl.data import Authors
from ofmu_pl.training.budget import GradientBudget
from ofmu_pl.training.run import Run

TINY = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 16}
TINY |= {"num_hidden_layers": 1, "num_attention_heads": 2}


def train(module, steps=2, callbacks=(), ckpt_path=None, precision="32-true", trainer=None, **data):
    data = four_authors(tuple(module.streams), module.num_batches, **data)
    return fit(module, data, steps, callbacks, ckpt_path, precision, **trainer or {})


def four_authors(streams, num_batches, **options):
    """Data of four authors, set up once for all that ask for the same."""
    data = copy(_four_authors(streams, num_batches, **options))
    for name, value in vars(data).items():
        if type(value) is dict:
            setattr(data, name, value.copy())
    return data


@cache
def _four_authors(streams, num_batches, **options):
    data = Authors(authors=4, forget_authors=1, batch_size=4, streams=streams, num_batches=num_batches, **options)
    data.setup()
    return data


def fit(module, data, steps, callbacks=(), ckpt_path=None, precision="32-true", **options):
    """Run a method quietly, its network initialised alike each time; returns the trainer."""
    saves = any(isinstance(c, ModelCheckpoint) for c in callbacks)
    options |= {"precision": precision, "callbacks": list(callbacks), "enable_checkpointing": saves}
    trainer = quiet_trainer(steps, **options)
    torch.manual_seed(0)
    trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
    return trainer


def quiet_trainer(steps, **options):
    """On the CPU; nothing is shown, logged or saved that ``options`` do not ask for."""
    quiet = {"accelerator": "cpu", "devices": 1, "max_steps": steps, "max_epochs": -1, "limit_val_batches": 0}
    quiet |= dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(**quiet | options)


def interrupted(make, folder, steps, at, run=None, **options):
    """A method that took ``steps`` iterations, and another that went on from the checkpoint ``at`` one of them."""
    keep = ModelCheckpoint(folder, every_n_train_steps=at, save_top_k=-1, filename="{step}")
    (run or train)(whole := make(), steps, callbacks=[keep], **options)
    (run or train)(resumed := make(), steps, ckpt_path=folder / f"step={at}.ckpt", **options)
    assert whole.gradient_evaluations == resumed.gradient_evaluations
    assert torch.equal(weights(whole), weights(resumed))
    return whole, resumed


class Unchecked(Callback):
    """Methods spend nothing on checking their numbers."""

    def on_train_start(self, trainer, pl_module):
        pl_module.run.checks_itself = False


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.network.parameters()])


def within_a_budget(costs, period, budget):
    """Number of iterations of these costs that ``GradientBudget`` allows; each goes on from a checkpoint."""
    module = SimpleNamespace(period=period, gradient_evaluations=0.0, run=Run(None))
    callback, iterations = GradientBudget(budget), 0
    while not module.run.stopped:
        module.gradient_evaluations += costs[iterations]
        callback.on_train_batch_end(None, module, None, None, iterations)
        iterations += 1
        (resumed := GradientBudget(budget)).load_state_dict(callback.state_dict())
        resumed.on_train_start(None, module)
        callback = resumed
    return iterations
