"""Hidden states of all layers, and the same model with other ones put in, against the architectures' own modules."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ofmu_pl.losses import IGNORED
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.layers import all_hidden_states, hidden_states, layers_of, patched
from ofmu_pl.support.errors import UserError

LLAMA = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
SHAPES = {
    "gpt2": {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 32},
    "llama": LLAMA,
    "qwen2": {**LLAMA, "num_key_value_heads": 1},
    "gemma2": {**LLAMA, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 4},  # logits are capped
    "gemma3_text": {**LLAMA, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 4},
}
RECIPE = CausalLM("unused")


def make(kind, seed=0):
    torch.manual_seed(seed)
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = AutoConfig.for_model(kind, vocab_size=23, initializer_range=0.3, **ids, **SHAPES[kind])
    return AutoModelForCausalLM.from_config(config).eval()


def batch():
    ids = torch.randint(23, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, IGNORED)}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_the_last_layer_put_in_its_own_place_is_the_model(kind, dtype):
    model, b = make(kind).to(dtype), batch()
    own = RECIPE.sample_losses(model, b)
    states = all_hidden_states(model, b)
    assert len(states) == 4
    with patched(layers_of(model)[-1], states[-1]):
        assert torch.equal(RECIPE.sample_losses(model, b), own)  # to the last bit
    with patched(layers_of(model)[-1], states[1]):
        assert (RECIPE.sample_losses(model, b) - own).abs().min() > 1e-4
    assert torch.equal(RECIPE.sample_losses(model, b), own)  # and nothing stays


@pytest.mark.parametrize("kind", SHAPES)
@torch.no_grad()
def test_states_are_those_of_transformers_and_the_lens_is_norm_and_head(kind):
    model, b = make(kind).double(), batch()
    states = all_hidden_states(model, b)
    output = model(input_ids=b["input_ids"], attention_mask=b["attention_mask"], output_hidden_states=True)
    norm = model.get_decoder().ln_f if kind == "gpt2" else model.get_decoder().norm
    for ours, theirs in zip(states[:-1], output.hidden_states[:-1], strict=True):
        assert torch.equal(ours, theirs)
    torch.testing.assert_close(norm(states[-1]), output.hidden_states[-1], rtol=1e-6, atol=1e-6)
    for state in states:
        logits = model.lm_head(norm(state))
        cap = getattr(model.config, "final_logit_softcapping", None)
        logits = logits if cap is None else cap * torch.tanh(logits / cap)
        with patched(layers_of(model)[-1], state):
            got = model(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
        torch.testing.assert_close(got, logits, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_positions_that_are_not_replaced_stay():
    model, other, b = make("llama"), make("llama", seed=1), batch()
    where = torch.zeros(3, 9, dtype=torch.bool)
    where[0, 4] = True
    plain = model(**{k: b[k] for k in ("input_ids", "attention_mask")}).logits
    with patched(layers_of(model)[1], all_hidden_states(other, b)[2], where):
        moved = model(**{k: b[k] for k in ("input_ids", "attention_mask")}).logits
    assert torch.equal(moved[1:], plain[1:])
    assert torch.equal(moved[0, :4], plain[0, :4])  # causal: what comes before does not see it
    assert (moved[0, 4:] - plain[0, 4:]).abs().amax(1).min() > 1e-4


@torch.no_grad()
def test_states_of_one_layer_are_those_of_all_and_what_is_no_layer_is_refused():
    model, b = make("llama"), batch()
    assert torch.equal(hidden_states(model, b, "model.layers.1"), all_hidden_states(model, b)[2])
    for name in ("model.layers", "model"):  # never runs; gives more than a tensor
        with pytest.raises(UserError, match=rf"'{name}'.*`layer`.*layers.0 \.\.\. model.layers.2"):
            hidden_states(model, b, name)


def test_a_model_without_a_list_of_layers_is_refused():
    model = make("llama")
    model.config.num_hidden_layers = 5
    with pytest.raises(UserError, match="LlamaForCausalLM.* 5 "):
        layers_of(model)
