"""Classifiers of the user's own: weights in other programs' forms, what does not fit, and what a model is kept by."""

import math
import re
from functools import partial

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

from ofmu_pl.data import Digits
from ofmu_pl.networks import Classifier
from ofmu_pl.networks.vision import predict
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import write_json
from ofmu_pl.support.provenance import provenance
from tests.helpers.pickled_code import PickledCode


class Own(nn.Module):
    """A convolution with BatchNorm, and logits from a convolution: there is no linear layer."""

    def __init__(self, classes: int = 10, width: int = 4, stride: int = 1) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        return self.head(self.features(x)).mean((2, 3))


def tied():
    layer = nn.Linear(64, 64)
    return nn.Sequential(nn.Flatten(), layer, layer, nn.Linear(64, 10))


@pytest.fixture(scope="module")
def data():
    digits = Digits(forget_classes=[0], train_items=100)
    digits.setup()
    return digits


def test_it_is_the_network_after_normalisation(data):
    own = Own().eval()
    found = predict(Classifier(own).build(data, exact=False), data.test_images[:5])
    images = (data.test_images[:5].float() / 255 - data.mean[0]) / data.std[0]
    torch.testing.assert_close(found, own(images).double().log_softmax(1).detach())


def test_an_object_is_copied_and_a_class_made_anew(data):
    own = Own().half().train()
    recipe = Classifier(own)
    first, second = (recipe.build(data, exact=False) for _ in range(2))
    assert torch.equal(first[1].head.weight, own.head.weight.float())
    assert first[1].head.weight is not second[1].head.weight
    assert own.training, "it is left as it was"
    made = [Classifier(Own).build(data, exact=False) for _ in range(2)]
    assert not torch.equal(made[0][1].head.weight, made[1][1].head.weight)


FORMS = {
    "plain": (lambda state: state, ".pt"),
    "parallel": (lambda state: {f"module.{name}": x for name, x in state.items()}, ".pth"),
    "checkpoint": (lambda state: {"state_dict": state, "epoch": 3, "optimizer": {"lr": 0.1}}, ".pth"),
    "both": (lambda state: {"model_state_dict": {f"module.{k}": x for k, x in state.items()}}, ".pt"),
    "half": (lambda state: {name: x.half() if x.is_floating_point() else x for name, x in state.items()}, ".pt"),
    "Lightning": (lambda state: {"state_dict": {f"model.{k}": x for k, x in state.items()}, "epoch": 1}, ".ckpt"),
    "compiled": (lambda state: {f"module._orig_mod.{k}": x for k, x in state.items()}, ".pt"),
    "before counters": (lambda state: {k: x for k, x in state.items() if "num_batches" not in k}, ".pth"),
    "safetensors": (lambda state: {f"module.{name}": x for name, x in state.items()}, ".safetensors"),
}


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_other_programs(form, data, tmp_path):
    state = Own().state_dict()
    change, suffix = FORMS[form]
    path = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(change(state), path)
    built = Classifier(Own, path=str(path)).build(data, exact=False)[1].state_dict()
    for name, x in state.items():
        assert built[name].dtype == x.dtype
        torch.testing.assert_close(built[name], x.half().float() if form == "half" and x.is_floating_point() else x)


def test_a_part_of_the_network_may_be_called_module(data, tmp_path):
    """Its names begin as those of ``DataParallel`` do, and are left as they are."""
    wrapped = nn.DataParallel(Own())
    torch.save(wrapped.state_dict(), tmp_path / "weights.pt")
    own = nn.Sequential()
    own.add_module("module", Own())
    built = Classifier(own, path=str(tmp_path / "weights.pt")).build(data, exact=False)[1]
    assert torch.equal(built.module.head.weight, wrapped.module.head.weight)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda state, mark: {**state, "head.extra": torch.zeros(2)}, "unexpected: head.extra"),
        (lambda state, mark: {k: x for k, x in state.items() if k != "head.bias"}, "missing: head.bias"),
        (
            lambda state, mark: Own(classes=7).state_dict(),
            r"head.bias \(\[7\], .*\[10\]\)",
        ),
        (lambda state, mark: Own(), r"pickled .*\([\w.]*Own\)"),
        (lambda state, mark: {"state_dict": state, "args": PickledCode(mark)}, "pickled"),
        (lambda state, mark: [1, 2], "model_state_dict"),
        (lambda state, mark: {}, "model_state_dict"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(content, words, data, tmp_path):
    path, mark = tmp_path / "weights.pt", tmp_path / "mark"
    torch.save(content(Own().state_dict(), mark), path)
    with pytest.raises(UserError, match=words) as refusal:
        Classifier(Own, path=str(path)).build(data, exact=False)
    assert "weights.pt" in str(refusal.value)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_a_file_that_is_no_file_of_weights(name, data, tmp_path):
    (tmp_path / name).write_bytes(b"no weights at all, but some text")
    with pytest.raises(UserError, match=rf"{re.escape(name)}.*readable"):
        Classifier(Own, path=str(tmp_path / name)).build(data, exact=False)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("resnet19", "'resnet19' .*torch.nn.Module"),
        (dict, " dict, .*torch.nn.Module"),
        (partial(Own, classes=7), r"Own .*\(1, 7\) .*'digits' .*10 "),
        (partial(nn.Linear, 4, 10), r"Linear .*1 x 8 x 8 \(.*mat1"),
        (partial(nn.Conv2d, 1, 2, 3), r"Conv2d .*\(1, 2, 6, 6\)"),
        ("resnet18", "ResNet .*1 x 8 x 8"),
    ],
)
def test_what_is_no_classifier_of_the_data_is_refused(module, words, data):
    with pytest.raises(UserError, match=words):
        Classifier(module).build(data, exact=False)


def test_torchvisions_networks_have_the_datas_classes():
    recipe = Classifier("resnet18")
    assert recipe.body(3, 7).fc.out_features == 7
    assert recipe.architecture == {"module": "resnet18"}


@pytest.mark.parametrize("make", [Own, tied])
def test_a_saved_one_comes_back_bit_for_bit(make, data, tmp_path):
    recipe = Classifier(make)
    first = recipe.build(data, exact=False)
    recipe.save(first, tmp_path, data)
    write_json(tmp_path / "provenance.json", provenance(data))
    second = recipe.at(str(tmp_path)).build(data, exact=False)
    assert all(torch.equal(x, second.state_dict()[name]) for name, x in first.state_dict().items())
    read = Classifier(make, path=str(tmp_path))
    assert read.uniform_loss(read.build(data, exact=False)) == pytest.approx(math.log(10))
    with pytest.raises(UserError, match=" (module|layers) "):
        Classifier(partial(Own, stride=2), path=str(tmp_path)).build(data, exact=False)


def test_what_a_trained_model_is_kept_by():
    """Layers, arguments and source tell networks apart, and making one to look at it draws nothing."""
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    one, same, other = (Classifier(partial(Own, stride=n)).identity for n in (1, 1, 2))
    assert one == same != other
    assert torch.equal(torch.rand(1), expected)
    assert Classifier(Own).architecture["module"] == f"{__name__}.Own"


def test_an_object_cannot_be_retrained():
    with pytest.raises(UserError, match="Classifier"):
        Classifier(Own()).at(None)
    assert Classifier(Own, path="x").at(None).path is None


def test_planning_makes_it_without_numbers(data):
    assert {x.device.type for x in Classifier(Own).skeleton(data, exact=True).state_dict().values()} == {"meta"}


PROBABILITIES = {
    "softmax": lambda x: x.softmax(-1),
    "softmax by hand": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    "sigmoid": torch.sigmoid,
}


@pytest.mark.parametrize("ending", PROBABILITIES)
def test_probabilities_are_refused(data, ending):
    class Ends(Own):
        def forward(self, x):
            return PROBABILITIES[ending](super().forward(x))

    with pytest.raises(UserError, match="Ends gives probabilities"):
        Classifier(Ends).build(data, exact=False)


@pytest.mark.parametrize("ending", [lambda x: x.log_softmax(-1), torch.relu, lambda x: 0 * x])
def test_log_probabilities_and_logits_of_any_size_are_taken(data, ending):
    class Ends(Own):
        def forward(self, x):
            return ending(super().forward(x))

    Classifier(Ends).build(data, exact=False)


HUGGING_FACE = {
    "vit": lambda: ViTForImageClassification(
        ViTConfig(
            **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
            **{"image_size": 8, "patch_size": 4, "num_channels": 1, "num_labels": 10},
        )
    ),
    "resnet": lambda: ResNetForImageClassification(
        ResNetConfig(num_channels=1, embedding_size=4, hidden_sizes=[8], depths=[1], num_labels=10)
    ),
}


@pytest.mark.parametrize("kind", HUGGING_FACE)
def test_the_logits_of_transformers_classifiers_are_taken(data, kind):
    own = HUGGING_FACE[kind]().eval()
    recipe = Classifier(own)
    network = recipe.build(data, exact=True)
    images = (data.test_images[:5].float() / 255 - data.mean[0]) / data.std[0]
    expected = own(images).logits.double().log_softmax(1).detach()
    torch.testing.assert_close(predict(network, data.test_images[:5]), expected)
    own.load_state_dict(network[1].state_dict())
    assert torch.is_tensor(network(images))
    assert hasattr(own(images), "logits"), "it is left as it was"
