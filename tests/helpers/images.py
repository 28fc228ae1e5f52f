"""A trainer on scikit-learn's digits, for tests of image methods."""

from ofmu_pl.data import Digits
from ofmu_pl.networks import SmallCNN
from tests.helpers.training import fit


def train_on_digits(module, steps=2, order=0, ckpt_path=None, callbacks=(), precision="32-true", trainer=None, **data):
    """Run a method, its network initialised alike each time, its batches drawn by ``order``; returns the trainer."""
    options = {"forget_classes": [0], "train_items": 400, "batch_size": 16} | data
    digits = Digits(streams=module.streams, num_batches=module.num_batches, seed=order, **options)
    return fit(module, digits, steps, callbacks, ckpt_path, precision, **trainer or {})


def network(**options):
    return SmallCNN(width=8, **options)
