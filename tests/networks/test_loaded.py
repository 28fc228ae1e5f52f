"""A loaded language model: what a plan makes of it is what a run makes of it, without its weights."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from ofmu_pl.networks import LoadedLM
from tests.helpers.training import TINY

NO_ROWS = SimpleNamespace(lengths={}, streams=())


def loaded(adapted):
    shape = {name: x for name, x in TINY.items() if name != "model_type"}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, tie_word_embeddings=True, **shape)).to(torch.bfloat16).train()
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=2)) if adapted else model


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("adapted", [False, True])
def test_a_skeleton_is_the_model_that_is_built_and_copies_no_weights(adapted, exact, monkeypatch):
    model = loaded(adapted)
    built = LoadedLM(copy.deepcopy(model)).build(NO_ROWS, exact=exact)
    with monkeypatch.context() as patch:
        patch.setattr(nn.Parameter, "__deepcopy__", None)
        found = LoadedLM(model).skeleton(NO_ROWS, exact=exact)
    described = [
        {name: (x.shape, x.dtype, x.requires_grad) for name, x in m.state_dict(keep_vars=True).items()}
        for m in (built, found)
    ]
    assert described[0] == described[1]
    assert {x.device.type for x in (*found.parameters(), *found.buffers())} == {"meta"}
    assert found.get_output_embeddings().weight is found.get_input_embeddings().weight
    assert found.config._attn_implementation == built.config._attn_implementation
    assert (found.training, found.config.use_cache) == (built.training, built.config.use_cache) == (False, False)
    assert (model.training, model.config.use_cache, model.dtype) == (True, True, torch.bfloat16), "it stays as it is"
    assert {x.device.type for x in model.parameters()} == {"cpu"}
