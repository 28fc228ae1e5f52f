"""The frozen copy in bfloat16: the same numbers under bf16-mixed, in less memory, and again where a run goes on."""

import torch

from ofmu_pl.data import Authors
from ofmu_pl.modules import GradDiff
from ofmu_pl.networks import CausalLM
from tests.helpers.training import TINY, fit, interrupted, weights

GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2}


def method(config=TINY):
    torch.manual_seed(0)
    return GradDiff(CausalLM(config=dict(config)), retain_loss="kl")


def train(module, steps=2, callbacks=(), ckpt_path=None):
    streams = {"streams": module.streams, "num_batches": module.num_batches}
    data = Authors(authors=4, forget_authors=1, batch_size=4, **streams)
    return fit(module, data, steps, callbacks, ckpt_path, precision="bf16-mixed")


def test_the_copy_has_matrices_in_bfloat16_and_ends_with_the_same_weights(monkeypatch):
    halved = method()
    train(halved)
    types = {name: p.dtype for name, p in halved._frozen.network.named_parameters()}
    assert types["model.layers.0.mlp.up_proj.weight"] == torch.bfloat16
    assert types["model.embed_tokens.weight"] == types["model.norm.weight"] == torch.float32
    monkeypatch.setattr(CausalLM, "never_trained", lambda recipe: recipe)
    whole = method()
    train(whole)
    assert {p.dtype for p in whole._frozen.network.parameters()} == {torch.float32}
    assert torch.equal(weights(halved), weights(whole))


def test_a_run_that_goes_on_makes_the_same_copy(tmp_path):
    interrupted(method, tmp_path, 4, at=2, run=train)


def test_a_network_without_linear_layers_is_kept_as_it_is():
    module = method(GPT2)
    train(module, steps=1)
    assert {p.dtype for p in module._frozen.network.parameters()} == {torch.float32}
