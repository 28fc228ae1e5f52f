"""The bar of a run: one over all epochs, with the numbers of the iteration, closed whatever ends the run."""

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from ofmu_pl.data import Authors
from ofmu_pl.modules import FineTune
from ofmu_pl.networks import CausalLM
from ofmu_pl.training.progress import IterationProgressBar
from tests.helpers.training import TINY, quiet_trainer


class Fail(Callback):
    """Ends a run by an error in its second iteration."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == 1:
            raise RuntimeError("full disk")


def run(*callbacks):
    module = FineTune(network=CausalLM(config=TINY), optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    data = Authors(authors=4, forget_authors=1, batch_size=16, streams=module.streams, num_batches=module.num_batches)
    trainer = quiet_trainer(12, callbacks=[IterationProgressBar(), *callbacks], enable_progress_bar=True)
    trainer.fit(module, datamodule=data)
    return trainer


def shown(capsys):
    lines = capsys.readouterr().out.replace("\r", "\n").splitlines()
    return [line for line in lines if line.startswith("FineTune:")]


def test_one_bar_over_all_epochs_ends_with_the_numbers_of_the_last_iteration(capsys):
    assert run().current_epoch > 1
    first, last = shown(capsys)  # into a file: no line an epoch
    assert "| 0/12 [" in first
    assert "| 12/12 [" in last
    assert "L=" in last


def test_an_error_leaves_the_bar_where_it_was(capsys):
    with pytest.raises(RuntimeError, match="full disk"):
        run(Fail())
    assert "| 1/12 [" in shown(capsys)[-1]
