"""Scores of images, shared by ranks."""

import numpy as np
import torch

from ofmu_pl.evaluation.images import score_images
from ofmu_pl.metrics import ImageScores
from tests.helpers.forked_ranks import on_two_ranks


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


def test_a_rank_may_have_no_image_of_a_set(tmp_path):
    alone = scores_of_few()
    assert alone.keys() == {"forget", "retain"}
    for found in on_two_ranks(lambda rank: scores_of_few(), tmp_path):
        torch.testing.assert_close(found, alone)
    again = ImageScores.from_dict(alone["retain"])
    assert again.log_probs.dtype == "float64", "a run that goes on has every digit from its checkpoint"
