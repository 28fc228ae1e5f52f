"""Scores of images, shared by ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as mp

from ofmu_pl.evaluation.images import score_images
from ofmu_pl.metrics import ImageScores


class Few:
    """Sets that are smaller than the number of ranks, or empty."""

    def __init__(self):
        self.evaluation_sets = {name: np.arange(n) + 3 for name, n in (("forget", 1), ("retain", 5), ("test", 0))}

    def images_of(self, name):
        n = len(self.evaluation_sets[name])
        pixels = torch.arange(n * 16) * 41 % 256
        return pixels.view(n, 1, 4, 4).byte(), torch.arange(n) % 3


def scores_of_few():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    scores = score_images(network, Few(), ["forget", "retain", "test"])
    return {name: s.as_dict() for name, s in scores.items()}


def _rank_of_few(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save(scores_of_few(), Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def test_a_rank_may_have_no_image_of_a_set(tmp_path):
    mp.start_processes(_rank_of_few, args=(str(tmp_path),), nprocs=2, start_method="fork")
    alone = scores_of_few()
    assert alone.keys() == {"forget", "retain"}
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), alone)
    again = ImageScores.from_dict(alone["retain"])
    assert again.log_probs.dtype == "float64", "a run that goes on has every digit from its checkpoint"
