"""What is said before any number: which targets are not shown to know their rows, and what is lost at the end."""

import copy
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import ofmu_pl
from ofmu_pl.evaluation.caveats import SO, guessed, like_held_out, like_retained, read_otherwise
from ofmu_pl.evaluation.images import score_images
from ofmu_pl.metrics import ImageScores, SetScores

QUIET = {"progress": False, "accelerator": "cpu"}
MEAN, STD = [0.5] * 3, [0.25] * 3
NAMES = tuple("abcdef")


def side(losses, facts=None):
    return SetScores(np.arange(len(losses)), np.array(losses), facts_loss=None if facts is None else np.array(facts))


@pytest.mark.parametrize(
    ("forget", "held", "known"),
    [
        (np.linspace(0.1, 0.4, 8), np.linspace(2, 6, 12), True),
        (np.linspace(3, 7, 8), np.linspace(2, 6, 12), False),
        (np.linspace(2, 6, 8), np.linspace(2, 6, 12), False),
        ([0.1], np.linspace(2, 6, 10), True),  # no test could tell, and it is below all
        ([3.1], np.linspace(2, 6, 10), False),
    ],
)
@pytest.mark.parametrize("suffix", ["", "_doc"])
def test_forget_rows_are_held_against_held_out_rows(forget, held, known, suffix):
    scores = {f"forget{suffix}": side(forget), f"holdout{suffix}": side(held)}
    assert (like_held_out(scores) is None) is known


@pytest.mark.parametrize(
    ("kept", "held", "told"),
    [
        (np.linspace(0.1, 0.4, 20), np.linspace(0.12, 0.39, 12), True),
        (np.linspace(0.1, 0.4, 20), np.linspace(0.3, 0.6, 12), False),  # less known
        (np.linspace(2, 6, 20), np.linspace(2, 6, 12), False),  # neither is known, as where a base model is to forget
    ],
)
def test_held_out_rows_that_are_known_are_told(kept, held, told):
    said = like_retained({"forget": side([0.1] * 4), "retain": side(kept), "holdout": side(held)})
    assert (said is not None) is told
    assert like_retained({"forget": side([0.1] * 4), "holdout": side(held)}) is None


def test_of_few_rows_known_best_nothing_is_told():
    """No rank test of two and two rows could find it."""
    assert like_retained({"retain": side([0.1, 0.2]), "holdout": side([0.5, 0.6])}) is None
    assert like_retained({"retain": side([0.1, 0.5]), "holdout": side([0.2, 0.6])}) is not None


def test_facts_alone_may_be_known():
    losses = np.linspace(2, 6, 12)
    scores = {"forget": side(losses, losses / 100), "holdout": side(losses, losses)}
    assert like_held_out(scores) is None


def test_of_targets_that_know_nothing_few_are_taken_for_others():
    """Two tests at half of 5 %: without the correction 9 % would be."""
    rng = np.random.default_rng(0)
    draws = [[side(*rng.normal(3, 1, (2, n))) for n in (20, 30)] for _ in range(1000)]
    taken = sum(like_held_out({"forget": f, "holdout": h}) is None for f, h in draws)
    assert 25 < taken < 65


@pytest.mark.parametrize(("loss", "known"), [(3.0, True), (8.5, False)])
@pytest.mark.parametrize("name", ["forget", "retain_doc"])
def test_without_held_out_rows_they_are_held_against_guesses(loss, known, name):
    scores = {name: side([loss] * 4)}
    assert like_held_out(scores) is None
    assert guessed(scores, 8.0, "forget", "retain") is not known


@pytest.mark.parametrize(
    ("right", "n", "classes", "at_chance"), [(1, 3, 2, False), (0.6, 10, 2, True), (0.6, 10, 10, False)]
)
def test_images_are_held_against_guesses_by_their_number(right, n, classes, at_chance):
    labels = np.zeros(n, dtype=int)
    log_probs = np.full((n, classes), np.log(0.5 / (classes - 1)))
    log_probs[np.arange(n), np.where(np.arange(n) < right * n, 0, 1)] = np.log(0.5 + 1e-6)
    scores = {"retain": ImageScores(np.arange(n), labels, log_probs)}
    assert guessed(scores, np.log(classes), "retain") is at_chance


class Colours(torch.utils.data.Dataset):
    """Images of ``NAMES``, each of one colour with some noise, which no grey network could name."""

    classes: ClassVar = list(NAMES)

    def __init__(self, labels, n, seed):
        generator = torch.Generator().manual_seed(seed)
        colours = torch.tensor(
            [[0.9, 0.1, 0.1], [0.1, 0.1, 0.9], [0.9, 0.5, 0.1], [0.1, 0.5, 0.9], [0.5] * 3, [0.1] * 3]
        )
        self.labels = [label for label in labels for _ in range(n)]
        noise = 0.1 * torch.rand(len(self.labels), 3, 6, 6, generator=generator)
        self.images = (colours[self.labels][:, :, None, None] + noise).clamp(0, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


PARTS = {"forget": Colours([4], 12, 1), "retain": Colours([0, 1, 2, 3, 5], 12, 2), "test": Colours(range(6), 4, 3)}


def taught(read=lambda x: (x - 0.5) / 0.25, order=range(6)):
    """A network that was taught the colours by another program."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 6))
    images = torch.cat([PARTS[side].images for side in ("forget", "retain")])
    labels = torch.tensor([order[i] for side in ("forget", "retain") for i in PARTS[side].labels])
    optimizer = torch.optim.Adam(net.parameters(), 2e-2)
    for _ in range(150):
        loss = nn.functional.cross_entropy(net(read(images)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (net(read(images)).argmax(1) == labels).float().mean() > 0.98
    return net


def unlearnt(net, **options):
    return ofmu_pl.unlearn(net, **PARTS, mean=MEAN, std=STD, steps=1, **QUIET, **options)


def examined(net, **options):
    trained = torch.utils.data.ConcatDataset([PARTS["forget"], PARTS["retain"]])
    trained.classes = list(NAMES)
    data = ofmu_pl.ImageDatasets(trained, PARTS["test"], forget_rows=list(range(12)), mean=MEAN, std=STD, **options)
    data.setup()
    model = ofmu_pl.Classifier(net).build(data, exact=False)
    return read_otherwise(model, data), score_images(model, data, ["forget", "retain"])


WRONG = {
    "BGR": (lambda x: (x.flip(1) - 0.5) / 0.25, "blue, green, red"),
    "bytes": (lambda x: 255 * x, "pixels from 0 to 255"),
    "another mean": (lambda x: x, "mean 0 and std 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_images_that_are_read_otherwise_than_in_training(case):
    read, told = WRONG[case]
    assert told in examined(taught(read))[0]


@pytest.mark.parametrize("order", [[1, 2, 3, 4, 5, 0], [1, 0, 2, 3, 4, 5]])
def test_classes_in_another_order(order):
    told, scores = examined(taught(order=order))
    assert f"'{NAMES[0]}' as class 1 instead of 0" in told
    assert "`data.classes`" in told
    told_right, right = examined(taught(order=order), classes=sorted(NAMES, key=lambda name: order[NAMES.index(name)]))
    assert told_right is None
    assert not guessed(right, np.log(6), "forget", "retain")
    assert guessed(scores, np.log(6), "retain") == (order[2] != 2)


def test_two_orders_give_one_result():
    """Of a network whose outputs are exchanged, with the order said, everything is as of the other."""
    order = [2, 0, 1, 5, 3, 4]
    net = taught()
    exchanged = copy.deepcopy(net)
    with torch.no_grad():
        for ours, theirs in zip(exchanged[-1].parameters(), net[-1].parameters(), strict=True):
            ours[order] = theirs
    classes = sorted(NAMES, key=lambda name: order[NAMES.index(name)])
    plain, other = unlearnt(net), unlearnt(exchanged, classes=classes)
    for name, found in plain.metrics.items():
        assert other.metrics[name].value == pytest.approx(found.value, abs=1e-3), name
    images = PARTS["test"].images
    assert torch.allclose(net(images), exchanged(images)[:, order], atol=1e-4)


def test_guesses_and_a_class_that_is_taken_for_another_are_in_no_other_order():
    torch.manual_seed(0)
    assert examined(nn.Sequential(nn.Flatten(), nn.Linear(108, 6)))[0] is None
    assert examined(taught(order=[1, 1, 2, 3, 4, 5]))[0] is None


def test_images_that_are_read_right_are_not_doubted():
    told, scores = examined(taught())
    assert told is None
    assert not guessed(scores, np.log(6), "forget", "retain")


def test_what_a_run_says_of_a_target_that_reads_its_images_otherwise(capsys):
    net = taught(WRONG["another mean"][0])
    with pytest.warns(UserWarning, match="mean 0 and std 1"):
        result = unlearnt(net)
    assert "mean 0 and std 1" in result.remark
    result.table()
    out = capsys.readouterr().out
    assert "Forgotten:" not in out
    assert out.index("mean 0 and std 1") < out.index("RA")


def test_a_network_that_reads_its_images_right_is_not_doubted(recwarn, capsys):
    result = unlearnt(taught())
    assert SO not in (result.remark or "")
    assert not [w for w in recwarn if SO in str(w.message)]
    result.table()
    assert "Forgotten: " in capsys.readouterr().out


def test_an_untrained_network_has_forgotten_and_kept_nothing(capsys):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(108, 6))
    with pytest.warns(UserWarning, match="random guesses"):
        unlearnt(net).table()
    out = capsys.readouterr().out
    assert not {"Forgotten:", "Kept:"} & set(out.split())
    assert out.index("random guesses") < out.index("RA")
    assert "What must stay is lost" in out
