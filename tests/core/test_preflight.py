"""What is refused before the first step, and what is not."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from ofmu_pl.core.preflight import preflight
from ofmu_pl.errors import UserError


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


REFUSED_EXACT = {
    "fused LayerNorm": lambda: nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)),
    "batch statistics": lambda: nn.Sequential(nn.BatchNorm2d(2)).train(),
    "InstanceNorm": lambda: nn.Sequential(nn.InstanceNorm2d(2)).eval(),
    "fused attention kernel 'sdpa'": lambda: llama("sdpa"),
    "dropout on": lambda: nn.Sequential(nn.Dropout(0.1)).train(),
    "Llama.*dropout on": lambda: llama(attention_dropout=0.1).train(),
    "torch.compile": lambda: torch.compile(nn.Linear(2, 2)),
    "reentrant": lambda: checkpointed(True),
}


@pytest.mark.parametrize("words", REFUSED_EXACT)
def test_refused_under_autograd(words):
    with pytest.raises(UserError, match=words) as error:
        preflight(REFUSED_EXACT[words](), first_order=False)
    assert str(error.value).count(". ") == 0, "one sentence"


@pytest.mark.parametrize("words", ["has kinks", "dropout on", "BatchNorm in train mode"])
def test_refused_under_finite_differences(words):
    networks = {
        "has kinks": nn.ReLU(),
        "dropout on": nn.Dropout(0.1).train(),
        "BatchNorm in train mode": nn.BatchNorm1d(2).train(),
    }
    with pytest.raises(UserError, match=words):
        preflight(nn.Sequential(networks[words]), first_order=True)


@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "bf16-true"])
def test_refused_precision(precision):
    with pytest.raises(UserError, match=precision):
        preflight(nn.Linear(2, 2), first_order=True, precision=precision)


def test_bf16_leaves_no_penalty_by_differences():
    with pytest.raises(UserError, match="leaves nothing of the penalty"):
        preflight(nn.Linear(2, 2), first_order=True, precision="bf16-mixed")
    preflight(nn.Linear(2, 2), first_order=True, precision="bf16-mixed", penalised=False)
    preflight(nn.Linear(2, 2), first_order=False, precision="bf16-mixed")


def test_allowed():
    preflight(llama(), first_order=False)
    preflight(checkpointed(False), first_order=False)
    preflight(
        nn.Sequential(nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.5), nn.GroupNorm(1, 2)).eval(), first_order=False
    )
    preflight(llama("sdpa"), first_order=True)
    preflight(nn.LayerNorm(2), first_order=True)
