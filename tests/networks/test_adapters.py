"""Adapters on layers that share their weights, merged into a model that computes the same."""

import copy
import json
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from ofmu_pl.data import Authors
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.adapters import add_adapters
from ofmu_pl.networks.loaded import LoadedLM
from ofmu_pl.support.errors import UserError
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


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`", "ignore:Input and output embeddings")
def test_the_export_says_that_embeddings_are_untied(tmp_path):
    data = SimpleNamespace(tokenizer=Authors(authors=2, forget_authors=1).make_tokenizer(), lengths={}, streams=())
    recipe = CausalLM(config={**TINY, "tie_word_embeddings": True})
    model = recipe.build(data, exact=False)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach() + 0.1)  # with a flag that nobody has changed
    recipe.save(model, tmp_path, data)
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
    assert model.config.tie_word_embeddings
    ids = torch.tensor([[1, 5, 7]])
    with torch.no_grad():
        torch.testing.assert_close(AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits, model(ids).logits)


def test_experts_without_adapters_are_named():
    config = MixtralConfig(**SHAPE, num_key_value_heads=1, num_local_experts=2, num_experts_per_tok=1)
    with pytest.warns(UserWarning, match="target_parameters.*model.network.lora"):
        add_adapters(MixtralForCausalLM(config), {"r": 2})


SHAPE = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 16}


def llama(tied):
    return LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=tied))


def test_the_recipe_keeps_its_lists():
    """By which a model is known that was made from it; peft adds the layers that are tied to those."""
    fields = {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}
    written = copy.deepcopy(fields)
    add_adapters(llama(tied=True), fields)
    assert fields == written


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("target", ["embed_tokens", "lm_head"])
def test_adapters_that_are_one_memory_are_refused(target, device):
    fields = {"r": 2, "target_modules": [target], "ensure_weight_tying": True}
    with torch.device(device):
        tied, untied = llama(tied=True), llama(tied=False)
    with pytest.raises(UserError, match="ensure_weight_tying"):
        add_adapters(tied, fields)
    with pytest.warns(UserWarning, match="ensure_weight_tying"):
        copy.deepcopy(add_adapters(untied, fields))
    if device == "cpu":
        with pytest.raises(UserError, match="ensure_weight_tying"):
            LoadedLM(get_peft_model(llama(tied=True), LoraConfig(**fields)))
