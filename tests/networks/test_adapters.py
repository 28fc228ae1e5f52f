"""Adapters on layers that share their weights, merged into a model that computes the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from ofmu_pl.data import Authors
from ofmu_pl.networks import CausalLM
from tests.helpers.training import TINY


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`", "ignore:Input and output embeddings")
@pytest.mark.parametrize(
    ("target", "tied"),
    [(["lm_head"], False), (["embed_tokens"], False), (["embed_tokens", "lm_head"], False), (["q_proj"], True)],
)
def test_an_adapter_beside_tied_embeddings_is_merged_into_its_own_layer_alone(target, tied, tmp_path):
    data = SimpleNamespace(tokenizer=Authors(authors=2, forget_authors=1).make_tokenizer(), lengths={}, streams=())
    recipe = CausalLM(config={**TINY, "tie_word_embeddings": True}, lora={"r": 2, "target_modules": target})
    model = recipe.build(data, exact=False)
    for p in model.parameters():
        if p.requires_grad:
            nn.init.normal_(p)
    ids = torch.tensor([[1, 5, 7]])
    with torch.no_grad():
        before = model(ids).logits
        recipe.save(model, tmp_path, data)
        exported = AutoModelForCausalLM.from_pretrained(tmp_path)
        torch.testing.assert_close(exported(ids).logits, before, rtol=1e-4, atol=1e-4)
        assert torch.equal(model(ids).logits, before), "the model itself stays as it is"
    assert exported.config.tie_word_embeddings == tied
