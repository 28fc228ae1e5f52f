"""The work of every method, counted by hooks on what its networks multiply, is what it says."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import nn

from ofmu_pl.modules.lower_level import BoundedLoss, HeldOutLevels
from ofmu_pl.modules.steppers import PlainSteps
from ofmu_pl.networks import CausalLM
from tests.helpers.images import network, train_on_digits
from tests.helpers.methods import IMAGES, SGD, TEXTS, chosen
from tests.helpers.parts import ALONG_PATH, plain, printed
from tests.helpers.training import train
from tests.modules.test_baselines import at_test_size
from tests.modules.test_goal import unlearn
from tests.modules.test_image_methods import sgd

STEPS = 3
FORMS = {
    "ofmu": {"inner_steps": 2},
    "ofmu_holdout": {"inner_steps": 2, "lower": HeldOutLevels},
    "ofmu_guess": {"inner_steps": 2, "lower": partial(BoundedLoss, ngram_weight=0.1)},
    "ofmu_path": {"stop_at": "holdout", "inner_steps": 1} | ALONG_PATH,
    "ofmu_parts": {"beta": 0.1, "upper": printed(rho_0=0.1), "inner_steps": 2, "stepper": plain(1e-3)},  # and settling
}


@contextmanager
def counted(text=True):
    """Products of weights and rows that any network makes; those that a gradient is to come of count three times.

    A language model's output layer counts where it is called on rows, and not again for logits of some places.
    """
    work = [0.0]

    def note(module, args):
        if isinstance(module, nn.Linear | nn.Conv2d) and not (text and (args[0].dim() == 2 or args[0].shape[1] == 1)):
            work[0] += len(args[0]) * module.weight.numel() * (3 if torch.is_grad_enabled() else 1)

    handle = nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield work
    finally:
        handle.remove()


def gradient_of(module, batch_size):
    """What a gradient of one batch takes."""
    layers = [m for m in module.network.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    return 3 * batch_size * sum(m.weight.numel() for m in layers)


@pytest.mark.parametrize("name", chosen(TEXTS, "work"))
def test_of_baselines(folder, name, monkeypatch):
    """Reference answers and a frozen model's passes among it, and only the layers that run."""
    monkeypatch.setenv("OFMU_CACHE", "")  # which would name a model by what it says of eight tokens
    module = at_test_size(name, folder)
    with counted() as work:
        train(module, steps=STEPS)
    assert module.gradient_evaluations == pytest.approx(work[0] / gradient_of(module, 4), rel=1e-6)


@pytest.mark.parametrize("name", chosen(IMAGES, "work", lambda setting: setting.hooks))
def test_of_image_methods(name):
    setting = IMAGES[name]
    module = setting(network(**setting.network), **{"optimizer": sgd()} if setting.steps else {})
    with counted(text=False) as work:
        train_on_digits(module, steps=STEPS)
    assert module.gradient_evaluations == pytest.approx(work[0] / gradient_of(module, 16), rel=1e-6)


@pytest.mark.parametrize("name", FORMS)
def test_of_ofmu(known, name):
    """The levels of held-out rows, the first losses of forget and retain rows, and looks at whether it has arrived."""
    with counted() as work:
        module, _ = unlearn(known, 11, **{"lower": BoundedLoss, "stepper": PlainSteps, **FORMS[name]})
    assert module.gradient_evaluations == pytest.approx(work[0] / gradient_of(module, 8), rel=1e-6)
    assert module.gradient_evaluations > 11 * module.num_batches, "examinations are work"


def test_the_cache_of_reference_answers_makes_no_method_cheaper(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("OFMU_CACHE", str(tmp_path))
    seen = []
    for _ in range(2):
        train(module := TEXTS["npo"](CausalLM(path=folder), **SGD), steps=1)
        seen.append(module.gradient_evaluations)
    assert seen[0] == seen[1] > 2
