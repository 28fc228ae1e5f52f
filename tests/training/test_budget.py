"""The budget on several ranks; what it allows on one is tested with OFMU."""

from pathlib import Path
from types import SimpleNamespace

import torch
import torch.multiprocessing as mp

from ofmu_pl.core.ranks import ALONE, Ranks
from ofmu_pl.training.budget import GradientBudget


def _rank(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    trainer = SimpleNamespace(should_stop=False)
    module = SimpleNamespace(period=1, gradient_evaluations=0.0, run=SimpleNamespace(ranks=Ranks(rank, 2)))
    budget, iterations = GradientBudget(10.0), 0
    while not trainer.should_stop:
        module.gradient_evaluations += 3.0 - 2.0 * rank
        budget.on_train_batch_end(trainer, module, None, None, iterations)
        iterations += 1
    (Path(folder) / str(rank)).write_text(str(iterations))
    torch.distributed.destroy_process_group()


def test_ranks_whose_counts_differ_stop_together(tmp_path):
    """The exact engine keeps the graph of a single micro-batch and counts others again, or a rank has no row."""
    mp.start_processes(_rank, args=(str(tmp_path),), nprocs=2, start_method="fork")
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["3", "3"]


def test_what_is_read_before_the_first_iteration_is_spent_once():
    """30 of 40, then 2 an iteration: five fit, and none is expected to cost 32."""
    trainer = SimpleNamespace(should_stop=False)
    module = SimpleNamespace(period=1, gradient_evaluations=0.0, run=SimpleNamespace(ranks=ALONE))
    budget, iterations = GradientBudget(40.0), 0
    budget.on_train_start(trainer, module)
    module.gradient_evaluations += 30.0
    while not trainer.should_stop:
        budget.on_train_batch_start(trainer, module, None, iterations)
        module.gradient_evaluations += 2.0
        budget.on_train_batch_end(trainer, module, None, None, iterations)
        iterations += 1
    assert iterations == 5
