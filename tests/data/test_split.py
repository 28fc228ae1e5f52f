"""One split for training, retraining, unlearning and evaluation."""

import hashlib
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from ofmu_pl.data.sampler import keyed_generator
from ofmu_pl.data.split import PARTS, Split, draw_split, sample_evenly
from ofmu_pl.support.errors import UserError

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 50))
TEST_LABELS = np.arange(100) % 10
DRAWS = {
    "class": {"forget_classes": [3]},
    "classes": {"forget_classes": [7, 0]},
    "random": {"forget_fraction": 0.1},
    "stratified": {"forget_fraction": 0.1, "stratified": True},
}


def draw(**options):
    return draw_split(LABELS, TEST_LABELS, **options)


def counts(labels):
    return np.bincount(labels, minlength=10).tolist()


@pytest.mark.parametrize("options", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("validation_fraction", [0.0, 0.1, 0.3])
def test_parts_are_disjoint_and_complete(options, validation_fraction):
    split = draw(**options, validation_fraction=validation_fraction)
    pieces = [split.forget, split.retain, split.validation]
    assert sorted(np.concatenate(pieces)) == list(range(len(LABELS))), "each training image is in one part"
    assert sorted([*split.forget, *split.retain]) == split.full.tolist()
    assert counts(LABELS[split.validation]) == [round(50 * validation_fraction)] * 10
    assert split.test.tolist() == list(range(100)), "the forgotten class stays in the test set"
    assert len(split.forget) > 0
    for name in PARTS:
        part = getattr(split, name)
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all(), name


def test_classes_are_forgotten_whole():
    split = draw(**DRAWS["classes"])
    assert split.forgotten == (0, 7)
    assert counts(LABELS[split.forget]) == [45, 0, 0, 0, 0, 0, 0, 45, 0, 0]
    assert draw(**DRAWS["random"]).forgotten == ()


def test_random_forget_sets_have_their_size():
    assert len(draw(forget_fraction=0.1).forget) == 45
    assert len(draw(forget_fraction=0.5, validation_fraction=0).forget) == 250
    assert len(set(counts(LABELS[draw(forget_fraction=0.1).forget]))) > 1, "unstratified counts vary"
    even = counts(LABELS[draw(forget_fraction=0.1, stratified=True).forget])
    assert sum(even) == 45
    assert set(even) == {4, 5}


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ([5, 3, 2], 4, [2, 1, 1]),  # shares 2, 1.2, 0.8: the last has the largest remainder
        ([5, 3, 2], 10, [5, 3, 2]),
        ([5, 3, 2], 0, [0, 0, 0]),
        ([4, 4, 4], 2, [1, 1, 0]),  # a tie goes to the lower classes
        ([90, 9, 1], 10, [9, 1, 0]),
        ([3, 4] * 50, 77, [1, 1] * 27 + [0, 1] * 23),  # classes of 3 tie: an unstable sort would mix them up
    ],
)
def test_largest_remainders(sizes, count, expected):
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    drawn = sample_evenly(labels, count, keyed_generator("0/split/x"))
    assert np.bincount(labels[drawn], minlength=len(sizes)).tolist() == expected
    assert len(set(drawn.tolist())) == count


def test_the_original_model_does_not_depend_on_what_is_forgotten():
    first, *others = (draw(**options) for options in DRAWS.values())
    for other in others:
        assert np.array_equal(other.validation, first.validation)
        assert np.array_equal(other.full, first.full)
        assert not np.array_equal(other.forget, first.forget)


@pytest.mark.parametrize("options", DRAWS.values(), ids=DRAWS)
def test_the_seed_decides(options):
    first, again, other = draw(**options), draw(**options), draw(**options, seed=1)
    assert first.hashes("x") == again.hashes("x")
    assert not np.array_equal(first.validation, other.validation)
    assert not np.array_equal(first.forget, other.forget)
    same_validation = draw(**options, validation_fraction=0), draw(**options, validation_fraction=0, seed=1)
    differs = not np.array_equal(same_validation[0].forget, same_validation[1].forget)
    assert differs == ("forget_fraction" in options), "only a random forget set is drawn"


def test_the_draws_are_the_same_in_every_process():
    """Hash randomisation or a global generator would change the split: these were printed by another process."""
    split = draw_split(np.arange(30) % 3, [0, 1, 2], forget_fraction=0.2, seed=5)
    assert split.validation.tolist() == [6, 14, 22]
    assert split.forget.tolist() == [10, 11, 15, 25, 26]


def test_every_image_may_be_drawn():
    """A generator that is wrongly keyed or always takes the first would leave some out."""
    drawn = [draw(forget_fraction=0.1, seed=seed) for seed in range(150)]
    for part in ("forget", "validation", "retain"):
        assert set(np.concatenate([getattr(split, part) for split in drawn])) == set(range(500)), part


def test_a_split_cannot_be_changed():
    split = draw(forget_fraction=0.1)
    for name in PARTS:
        part = getattr(split, name)
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            part.setflags(write=True)
        with pytest.raises(FrozenInstanceError):
            setattr(split, name, part)
    given = np.array([4, 0, 2])
    split = Split(full=given, forget=[4], retain=[2, 0], validation=[1], test=[])
    given[:] = 7
    assert split.full.tolist() == [0, 2, 4], "a sorted copy"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forget": [1, 1]}, "'forget' .*twice"),
        ({"forget": [0]}, "'full' .*'retain'"),
        ({"forget": [1, 2]}, "'full' .*'retain'"),
        ({"validation": [2, 3]}, "overlaps"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    parts = {"full": [0, 1, 2], "forget": [1], "retain": [0, 2], "validation": [3], "test": [0]}
    Split(**parts)
    with pytest.raises(ValueError, match=message):
        Split(**(parts | changes))


def test_hashes_name_content_and_indices():
    split = draw(forget_classes=[3])
    hashes = split.hashes("abc")
    assert list(hashes) == [field.name for field in fields(Split)][:5]
    for name, value in hashes.items():
        content = b"abc/" + name.encode() + b"/" + np.array(getattr(split, name), dtype="<i8").tobytes()
        assert value == hashlib.sha256(content).hexdigest()[:16]
    assert not set(hashes.values()) & set(split.hashes("abd").values()), "other images, other hashes"
    assert replace(split, forgotten=()).hashes("abc") == hashes

    other = draw(forget_classes=[4]).hashes("abc")
    assert {name for name in PARTS if other[name] != hashes[name]} == {"forget", "retain"}
    alike = Split(full=[0, 1], forget=[0], retain=[1], validation=[], test=[0, 1]).hashes("abc")
    assert alike["full"] != alike["test"], "training and test images are not the same"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "neither .*data.forget_classes .*data.forget_fraction"),
        ({"forget_classes": [1], "forget_fraction": 0.1}, "both data.forget_classes .*data.forget_fraction"),
        ({"forget_classes": [3, 10]}, "data.forget_classes has 10"),
        ({"forget_classes": [3, 1, 3]}, "data.forget_classes .* twice"),
        ({"forget_classes": range(10)}, "data.forget_classes .*every"),
        *(({"forget_fraction": x}, "data.forget_fraction") for x in (0.0, 1.0, float("nan"), 0.001)),
        *(({"forget_fraction": 0.1, "validation_fraction": x}, "validation_fraction") for x in (1.0, float("nan"))),
        ({"forget_classes": [0], "validation_fraction": 0.999}, "data.forget_classes .*0,.*data.validation_fraction"),
    ],
)
def test_bad_options_get_one_sentence(options, message):
    with pytest.raises(UserError, match=message):
        draw(**options)


def test_a_class_that_only_the_test_set_has_cannot_be_forgotten():
    with pytest.raises(UserError, match="data.forget_classes .*2,.*data.validation_fraction"):
        draw_split([0, 1] * 10, [0, 1, 2], forget_classes=[2])
