"""The torchmetrics class: what the pure functions say, on one rank and on two."""

import pytest
import torch

from ofmu_pl.metrics import ImageScores, ImageUnlearning, vision_metrics
from tests.helpers.forked_ranks import on_two_ranks

SIZES = {"forget": 21, "retain": 40, "validation": 9, "test": 35}
OPTIONS = {"forgotten": (0,), "attack_samples": 20, "seed": 3}


def made_up():
    """Labels and logits by set."""
    generator = torch.Generator().manual_seed(0)
    draw = {}
    for name, n in SIZES.items():
        draw[name] = torch.randint(0, 4, (n,), generator=generator), torch.randn(n, 4, generator=generator)
    draw["forget"][0].zero_()
    return draw


def fed(metric, rank=0, ranks=1):
    for name, (labels, logits) in made_up().items():
        for part in torch.arange(len(labels))[rank::ranks].split(6):
            metric.update(name, part, labels[part], logits[part])
        metric.update(name, torch.tensor([0]), labels[:1], logits[:1])  # a padded sampler's repeated image
    return metric


def expected():
    scores = {
        n: ImageScores(torch.arange(len(y)).numpy(), y.numpy(), z.double().log_softmax(1).numpy())
        for n, (y, z) in made_up().items()
    }
    return {k: m.value for k, m in vision_metrics(scores, **OPTIONS).items()}


def test_batches_add_up_to_the_functions_values():
    metric = fed(ImageUnlearning(**OPTIONS))
    assert metric.compute() == pytest.approx(expected(), nan_ok=True)
    assert metric.scores()["test"].log_probs.dtype == "float64"
    metric.reset()
    assert not metric.scores()


def test_two_ranks_give_the_values_of_one(tmp_path):
    for found in on_two_ranks(lambda rank: fed(ImageUnlearning(**OPTIONS), rank, 2).compute(), tmp_path):
        assert found == pytest.approx(expected(), nan_ok=True)


def test_checkpoints_keep_every_digit():
    """A run that goes on has the scores of the model before from its checkpoint, and says the same of them."""
    for s in fed(ImageUnlearning(**OPTIONS)).scores().values():
        again = ImageScores.from_dict(s.as_dict())
        assert again.log_probs.dtype == s.log_probs.dtype == "float64"
        assert (again.log_probs == s.log_probs).all()
