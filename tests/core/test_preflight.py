"""What is refused before the first step, and what is not."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from transformers import LlamaConfig, LlamaForCausalLM

from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.calls import calls
from ofmu_pl.core.objective import Phi
from ofmu_pl.core.preflight import check_calls, check_precision, preflight
from ofmu_pl.support.errors import UserError
from tests.helpers.cases import BETA, FLOOR, classifier, direction, error, tiny_llama


def llama(attention="eager", **kwargs):
    config = LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, **kwargs
    )
    config._attn_implementation = attention
    return LlamaForCausalLM(config).eval()


def checkpointed(reentrant):
    model = llama()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    return model.train()


class Functional(nn.Module):
    """A network that holds no layer of torch's, as OLMo's own norm does not."""

    def __init__(self, function, size=4):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, size, dtype=torch.float64))

    def forward(self, x):
        return self.function(x * self.weight)


def seen(network, *shape, dtype=torch.float64):
    x = torch.randn(shape or (3, 4), dtype=dtype, generator=torch.Generator().manual_seed(0))
    network = network.to(dtype)
    return calls(network, lambda: network(x).sum())


def tokens(network):
    return calls(network, partial(network, input_ids=torch.arange(6).view(2, 3)))


IMAGE = (2, 4, 3, 3)
REFUSED_BY_CALLS = [
    ("^LayerNorm .*'1'", False, lambda: seen(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))),
    ("^Functional .*LayerNorm", False, lambda: seen(Functional(lambda x: F.layer_norm(x, (4,))))),
    ("^_WeightNorm ", False, lambda: seen(weight_norm(nn.Linear(4, 4)))),
    ("^BatchNorm2d .*model.engine", False, lambda: seen(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm2d(4)), *IMAGE)),
    ("^Functional .*eval ", False, lambda: seen(Functional(lambda x: F.batch_norm(x, None, None, training=True)))),
    ("^InstanceNorm2d ", False, lambda: seen(nn.Sequential(nn.Linear(3, 3), nn.InstanceNorm2d(4)).eval(), *IMAGE)),
    ("^BatchNorm2d .*train ", True, lambda: seen(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm2d(4)), *IMAGE)),
    ("attention", False, lambda: seen(Functional(lambda x: F.scaled_dot_product_attention(x, x, x)), 2, 1, 3, 4)),
    ("^ReLU .*'1' .*autograd", True, lambda: seen(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))),
    ("^Functional .*autograd", True, lambda: seen(Functional(F.relu))),
    ("^Functional .*autograd", True, lambda: seen(Functional(F.leaky_relu))),
    ("^Functional .*autograd", True, lambda: seen(Functional(F.hardswish))),
    ("^Dropout .*'0'", True, lambda: seen(nn.Sequential(nn.Dropout(0.1)).train())),
    ("^LlamaAttention .*dropout", False, lambda: tokens(llama(attention_dropout=0.1).train())),
]


@pytest.mark.parametrize(("words", "first_order", "make"), REFUSED_BY_CALLS)
def test_refused_by_what_is_called(words, first_order, make):
    with pytest.raises(UserError, match=words):
        check_calls(make(), first_order=first_order)


THIRD = {
    "group_norm": lambda x: F.group_norm(x, 1),  # two channels a group would be +1 and -1
    "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "softmax": lambda x: F.softmax(x, -1),
    "gelu": F.gelu,
    "silu": F.silu,
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "weight_norm": lambda x: torch._weight_norm(x, x.norm(dim=1, keepdim=True) + 1, 0),
}


@pytest.mark.parametrize("name", THIRD)
def test_third_derivatives_of_what_passes_are_right(name):
    """And wrong by tens of per cent of what does not: a rule without a reason is a defect too."""
    torch.manual_seed(0)
    case = classifier(nn.Sequential(nn.Linear(5, 4), Functional(THIRD[name]), nn.Linear(4, 4)), (5,))
    try:
        check_calls(calls(case.network, case.loss("forget")[0]), first_order=False)
        passes = True
    except UserError:
        passes = False
    v = direction(case)
    ours = Phi(Autograd(case.parameters), case.loss("forget"), case.loss("retain"), BETA, FLOOR, 3).hessian_vector(v)
    off = error(ours, case.along(case.grad_phi, v, 2e-3))
    assert (off < 1e-8) if passes else (off > 1e-2)


def test_what_is_cast_to_a_shorter_format_is_seen():
    assert seen(Functional(lambda x: x.float().softmax(-1))).narrowed
    assert tokens(llama().double()).narrowed, "norms and softmax of transformers' Llama"
    assert not tokens(llama()).narrowed
    case = tiny_llama()
    rotation = calls(case.network, case.loss("forget")[0])
    assert not rotation.narrowed, "only the rotation is computed in float32, and it is constant"


REFUSED_EXACT = {
    "'sdpa'": lambda: llama("sdpa"),
    "torch.compile": lambda: torch.compile(nn.Linear(2, 2)),
    "reentrant": lambda: checkpointed(True),
}


@pytest.mark.parametrize("words", REFUSED_EXACT)
def test_refused_under_autograd(words):
    with pytest.raises(UserError, match=words):
        preflight(REFUSED_EXACT[words](), first_order=False)


@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "bf16-true"])
def test_refused_precision(precision):
    with pytest.raises(UserError, match=precision):
        check_precision(precision)


def test_allowed():
    preflight(llama(), first_order=False)
    preflight(checkpointed(False), first_order=False)
    preflight(llama("sdpa"), first_order=True)
    quiet = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.GroupNorm(1, 4)).eval()
    check_calls(seen(quiet, *IMAGE), first_order=False)
    check_calls(tokens(llama()), first_order=False)
    check_calls(tokens(checkpointed(False)), first_order=False)
    check_calls(tokens(llama("sdpa")), first_order=True)
    check_calls(seen(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))), first_order=True)
    frozen = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4)).requires_grad_(False)
    check_calls(seen(nn.Sequential(frozen, nn.Linear(4, 4))), first_order=False)
