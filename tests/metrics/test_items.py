"""Values by item: each counted once, on one process and on several."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp

from ofmu_pl.metrics import ItemMean


def test_a_repeated_item_counts_once_and_the_first_value_stays():
    metric = ItemMean()
    metric.update(torch.tensor([7, 3]), torch.tensor([1.0, 2.0]))
    metric.update(torch.tensor([3, 5, 7]), torch.tensor([20.0, 4.0, 10.0]))
    ids, values = metric.items()
    assert ids.tolist() == [3, 5, 7]
    assert values.tolist() == [2.0, 4.0, 1.0]
    assert metric.compute().item() == pytest.approx(7 / 3)


def test_the_mean_is_float64_and_nan_propagates():
    metric = ItemMean()
    metric.update(torch.arange(3), torch.tensor([1e8, 1.0, 1.0]))
    assert metric.compute().dtype == torch.float64
    assert metric.compute().item() == pytest.approx((1e8 + 2) / 3, rel=1e-15)
    metric.update(torch.tensor([3]), torch.tensor([math.nan]))
    assert math.isnan(metric.compute())


def test_reset_forgets_and_nothing_gives_nan():
    metric = ItemMean()
    metric.update(torch.tensor([0]), torch.tensor([1.0]))
    metric.reset()
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert math.isnan(metric.compute())


DELIVERED = {
    "uneven, padded by a repeated item": [[(0, 1.0), (2, 3.0), (4, 5.0)], [(1, 2.0), (0, 1.0)]],
    "a rank without items": [[(0, 1.0), (1, 2.0)], []],
}


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    means = {}
    for name, ranks in DELIVERED.items():
        metric = ItemMean()
        for i, value in ranks[rank]:
            metric.update(torch.tensor([i]), torch.tensor([value]))
        metric._update_count = max(metric._update_count, 1)  # no warning of a rank without items
        means[name] = metric.compute().item()
    torch.save(means, Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_ranks_count_each_item_once(tmp_path):
    mp.start_processes(_rank, args=(str(tmp_path),), nprocs=2, start_method="fork")  # imports nothing
    for rank in range(2):
        means = torch.load(tmp_path / f"{rank}.pt")
        for name, ranks in DELIVERED.items():
            distinct = dict(pair for delivered in ranks for pair in delivered)
            assert means[name] == pytest.approx(sum(distinct.values()) / len(distinct)), (rank, name)
