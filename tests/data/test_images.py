"""Image batches: what they hold, augmentation, and what is refused."""

from itertools import product

import pytest
import torch

from ofmu_pl.data import Digits
from ofmu_pl.data.image_base import augmented
from ofmu_pl.support.errors import UserError


def digits(**options):
    data = Digits(**{"forget_classes": [0], "batch_size": 16} | options)
    data.setup()
    return data


def test_batches_hold_the_splits_images():
    data = digits()
    (batch,) = data.iteration(3)["forget"]
    assert batch["images"].shape == (16, 1, 8, 8)
    assert batch["images"].dtype == torch.float32
    assert batch["images"].max() <= 1
    assert (batch["labels"] == 0).all()
    rows = torch.from_numpy(data.split.forget.copy())[batch["ids"]]
    assert torch.equal((batch["images"] * 255).round().to(torch.uint8), data.images[rows])
    (retain,) = data.iteration(3)["retain"]
    assert not (retain["labels"] == 0).any()


def test_a_batch_is_a_function_of_seed_and_number():
    first, same, other = (digits(augment=True, seed=seed).iteration(5)["retain"][0] for seed in (1, 1, 2))
    assert torch.equal(first["images"], same["images"])
    assert not torch.equal(first["ids"], other["ids"])
    data = digits(augment=True)
    sweep = data.iterations_per_epoch
    index = list(range(16))
    assert not torch.equal(data.collate("forget", index, 0)["images"], data.collate("forget", index, sweep)["images"])


def test_crops_and_mirrors_move_pixels_and_nothing_else():
    torch.manual_seed(0)
    images = torch.rand(300, 2, 6, 6) + 1  # zeros can only come from the padding
    out = augmented(images, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    seen = set()
    for before, after in zip(padded, out, strict=True):
        found = []
        for top, left, mirror in product(range(9), range(9), (False, True)):
            crop = before[:, top : top + 6, left : left + 6]
            if torch.equal(crop.flip(2) if mirror else crop, after):
                found.append((top, left, mirror))
        assert found
        seen.add(found[0])
    assert [set(places) for places in zip(*seen, strict=True)] == [set(range(9)), set(range(9)), {False, True}]


def test_a_share_of_the_training_images_will_do():
    data = digits(train_items=200)
    assert len(data.split.full) + len(data.split.validation) == 200
    assert digits().hashes["full"] != data.hashes["full"]
    with pytest.raises(UserError, match="train_items=9999"):
        digits(train_items=9999)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"forget_classes": [10]}, "data.forget_classes"),
        ({"streams": ("forget", "alternative")}, "'alternative'"),
    ],
)
def test_bad_splits_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        digits(**options)


def test_test_images_are_the_never_seen_rows_of_single_images_and_not_of_whole_classes():
    data = digits(forget_classes=None, forget_fraction=0.005, augment=True)
    assert data.never_seen == "test"
    kinds = data.labels[torch.from_numpy(data.split.forget.copy())].unique()
    assert len(kinds) < 10, "or nothing is chosen"
    batch = data.collate("test", [1, 0], 0)
    assert torch.isin(batch["labels"], kinds).all()
    rows = torch.from_numpy(data.splits["test"][[1, 0]])
    as_they_are = data.test_images[rows].float() / 255
    assert not torch.equal(batch["images"], as_they_are), "forget images are augmented, and are compared with these"
    data.augment = False
    assert torch.equal(data.collate("test", [1, 0], 0)["images"], as_they_are)
    whole = digits()
    assert whole.never_seen is None
    assert "classes" in whole.why_no_never_seen
