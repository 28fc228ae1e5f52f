"""Image networks: architecture, BatchNorm's policy, folders."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18 as torchvision_resnet18

from ofmu_pl.data import Digits
from ofmu_pl.networks import ResNet18, SmallCNN, vision
from ofmu_pl.networks.vision import predict
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import write_json
from ofmu_pl.support.provenance import provenance
from tests.helpers.images import network


def test_resnet18_is_torchvisions_with_cifars_stem():
    torch.manual_seed(0)
    ours, theirs = ResNet18().body(3, 10), torchvision_resnet18(num_classes=10)
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    assert sum(p.numel() for p in ours.parameters()) == 11_173_962

    def by_kind(module):
        """In the order of the forward pass; torchvision registers a block's shortcut last, as ours."""
        return [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d | nn.Linear)]

    for a, b in zip(by_kind(ours), by_kind(theirs), strict=True):
        b.load_state_dict(a.state_dict())
    x = torch.randn(4, 3, 32, 32)
    for mode in (True, False):
        torch.testing.assert_close(ours.train(mode)(x), theirs.train(mode)(x))


def test_names_of_weights_are_those_of_saved_models():
    names = ResNet18(width=8).body(3, 10).state_dict().keys()
    assert {"0.weight", "1.running_var", "3.0.conv1.weight", "4.0.downsample.1.bias", "6.1.bn2.weight"} <= names
    assert len(names) == 122


@pytest.fixture
def data():
    digits = Digits(forget_classes=[0], train_items=300)
    digits.setup()
    return digits


@pytest.fixture
def folder(data, tmp_path):
    recipe = network()
    recipe.save(recipe.build(data, exact=False), tmp_path, data)
    write_json(tmp_path / "provenance.json", provenance(data, streams=["full"]))
    return tmp_path


def test_scores_are_log_probabilities_in_float64(folder, data, monkeypatch):
    monkeypatch.setattr(vision, "AT_A_TIME", 7 * 64)
    module = network(path=str(folder)).build(data, exact=False)
    found = predict(module, data.test_images)
    expected = module(data.test_images.float() / 255).double().log_softmax(1)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-5)


def test_one_target_serves_every_forget_set(folder):
    other = Digits(forget_fraction=0.2, train_items=300)
    other.setup()
    network(path=str(folder)).build(other, exact=False)


@pytest.mark.parametrize(
    ("recipe", "options", "words"),
    [
        (SmallCNN(width=8), {"split_seed": 1}, " full .*`split_seed`"),
        (SmallCNN(width=8), {"validation_fraction": 0.2}, " full .*`split_seed`"),
        (SmallCNN(width=16), {}, "width 8, .* 16"),
        (SmallCNN(width=8, norm="batch"), {}, "norm group, .* batch"),
        (ResNet18(width=8), {}, "SmallCNN, .* ResNet18"),
    ],
)
def test_a_model_of_another_split_or_shape_is_refused(folder, recipe, options, words):
    digits = Digits(**{"forget_classes": [0], "train_items": 300} | options)
    digits.setup()
    recipe.path = str(folder)
    with pytest.raises(UserError, match=words):
        recipe.build(digits, exact=False)


def test_missing_and_broken_folders_are_refused(folder, data, tmp_path):
    with pytest.raises(UserError, match="nowhere.*config.json"):
        network(path=str(tmp_path / "nowhere")).build(data, exact=False)
    with pytest.raises(UserError, match="empty"):
        network(path="").build(data, exact=False)
    (folder / "config.json").write_text("{")
    with pytest.raises(UserError, match="config.json"):
        network(path=str(folder)).build(data, exact=False)
    for kind in (SmallCNN, ResNet18):
        with pytest.raises(UserError, match="width=0"):
            kind(width=0)
    with pytest.raises(UserError, match="width 12"):
        SmallCNN(width=12)
