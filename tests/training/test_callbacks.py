"""A run's callbacks: the budget (what it allows on one rank is tested with OFMU), the bar, and what others refuse."""

import re
import time
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks import Callback

from ofmu_pl.core.ranks import Ranks
from ofmu_pl.data import Authors
from ofmu_pl.evaluation.images import ImageEvaluation
from ofmu_pl.modules import DoNothing, FineTune
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.budget import GradientBudget
from ofmu_pl.training.export import ModelExport
from ofmu_pl.training.progress import TIMED, IterationProgressBar
from ofmu_pl.training.record import RunRecord
from ofmu_pl.training.resumable import Resumable
from ofmu_pl.training.run import Run
from tests.helpers.forked_ranks import on_two_ranks
from tests.helpers.training import TINY, quiet_trainer


def iterations_of(rank):
    module = SimpleNamespace(period=1, gradient_evaluations=0.0, run=Run(None, Ranks(rank, 2)))
    budget, iterations = GradientBudget(10.0), 0
    while not module.run.stopped:
        module.gradient_evaluations += 3.0 - 2.0 * rank
        budget.on_train_batch_end(None, module, None, None, iterations)
        iterations += 1
    return iterations


def test_ranks_whose_counts_differ_stop_together(tmp_path):
    """The exact engine keeps the graph of a single micro-batch and counts others again, or a rank has no row."""
    assert on_two_ranks(iterations_of, tmp_path) == [3, 3]


def test_what_is_read_before_the_first_iteration_is_spent_once():
    """30 of 40, then 2 an iteration: five fit, and none is expected to cost 32."""
    module = SimpleNamespace(period=1, gradient_evaluations=0.0, run=Run(None))
    budget, iterations = GradientBudget(40.0), 0
    budget.on_train_start(None, module)
    module.gradient_evaluations += 30.0
    while not module.run.stopped:
        budget.on_train_batch_start(None, module, None, iterations)
        module.gradient_evaluations += 2.0
        budget.on_train_batch_end(None, module, None, None, iterations)
        iterations += 1
    assert iterations == 5


@pytest.mark.parametrize(
    ("name", "options"), [("GradientAccumulationScheduler", {"scheduling": {0: 4}}), ("EMAWeightAveraging", {})]
)
def test_callbacks_that_step_for_lightning_are_refused(name, options):
    if not hasattr(callbacks, name):
        pytest.skip(f"this version of Lightning has no {name}")
    trainer = SimpleNamespace(callbacks=[getattr(callbacks, name)(**options)])
    with pytest.raises(UserError, match=name):
        Resumable({}, "").setup(trainer, None, "fit")


@pytest.mark.parametrize("name", ["checkpoints", "./checkpoints/hf", "results.json", "config.yaml", "audit.html"])
def test_what_the_run_writes_is_no_name_for_the_model(name):
    with pytest.raises(UserError, match="--export.folder"):
        ModelExport(name)


@pytest.mark.parametrize("resumed_at", [0, 10])
def test_how_long_a_run_takes_is_said_once_and_counts_what_is_left(resumed_at, monkeypatch):
    """An evaluation of 30 s, then iterations of 2 s, but for the first of 9 and one of 7 s; a resumed one has 100 s."""
    said, clock = [], [0.0]
    module = SimpleNamespace(unlearns=True, period=1, record=RunRecord(), print=said.append)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    evaluation = ImageEvaluation()
    evaluation.seconds["evaluation"] = 100.0 if resumed_at else 30.0
    evaluation._book("evaluation")
    for number, seconds in enumerate([9, 2, 2, 7, 2, 2, 2, 2], start=1):
        clock[0] += seconds
        trainer = SimpleNamespace(max_steps=66, global_step=resumed_at + number)
        evaluation.on_train_batch_end(trainer, module, None, None, number)
        assert len(said) == (number >= TIMED)
    minutes, iterations, last = (2, 50, "the evaluation.") if resumed_at else (2, 60, "30 s.")
    assert re.search(rf" {minutes} min: .*\b{iterations} .*\b2 s\b", said[0])
    assert said[0].endswith(last)


class Fail(Callback):
    """Ends a run by an error in its second iteration."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == 1:
            raise RuntimeError("disk")


def run(*callbacks, module=None):
    module = module or FineTune(network=CausalLM(config=TINY), optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    data = Authors(authors=4, forget_authors=1, batch_size=16, streams=module.streams, num_batches=module.num_batches)
    trainer = quiet_trainer(12, callbacks=[IterationProgressBar(), *callbacks], enable_progress_bar=True)
    trainer.fit(module, datamodule=data)
    return trainer


def shown(capsys):
    lines = capsys.readouterr().out.replace("\r", "\n").splitlines()
    return [line for line in lines if line.startswith(("FineTune:", "DoNothing:"))]


def test_one_bar_over_all_epochs_ends_with_the_numbers_of_the_last_iteration(capsys):
    assert run().current_epoch > 1
    first, last = shown(capsys)  # into a file: no line an epoch
    assert "| 0/12 [" in first
    assert "| 12/12 [" in last
    assert "L=" in last


def test_the_bar_of_a_method_of_one_step_ends_with_it(capsys):
    run(module=DoNothing(CausalLM(config=TINY)))
    assert "| 1/1 [" in shown(capsys)[-1]


def test_an_error_leaves_the_bar_where_it_was(capsys):
    with pytest.raises(RuntimeError, match="disk"):
        run(Fail())
    assert "| 1/12 [" in shown(capsys)[-1]
