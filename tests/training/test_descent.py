"""What ends a run that diverges, and what is advised then."""

import inspect
import re

import pytest
import torch

from ofmu_pl import modules
from ofmu_pl.modules import OFMU
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import DivergedError
from tests.helpers.training import TINY, train


def test_a_runaway_step_is_not_counted():
    module = OFMU(CausalLM(config=TINY), optimizer=lambda p: torch.optim.SGD(p, lr=1e4), gradient_clip=None)
    with pytest.raises(DivergedError, match=r"iteration 1 \(.*norm"):
        train(module, steps=3)
    assert module.trainer.global_step == 0


def options_of(method):
    """Names of its constructor's arguments, also of those that it passes on."""
    names = set()
    for cls in method.__mro__:
        if "__init__" in vars(cls):
            parameters = inspect.signature(cls).parameters
            names |= set(parameters)
            if "kwargs" not in parameters:
                break
    return names


METHODS = [cls for cls in (getattr(modules, name) for name in modules.__all__) if issubclass(cls, UnlearningModule)]


@pytest.mark.parametrize("method", METHODS)
def test_after_a_divergence_options_are_named_that_the_method_has(method):
    remedy = method(CausalLM(config=TINY)).remedy
    named = set(re.findall(r"model\.(\w+)", remedy))
    if "rate" in remedy:
        named.add("optimizer")
    assert named
    assert named <= options_of(method)
