"""Losses of a language model, whole and cut into micro-batches."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from ofmu_pl.data import Authors
from ofmu_pl.errors import UserError
from ofmu_pl.networks import CausalLM

TINY = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


@pytest.fixture(scope="module")
def data():
    data = Authors(authors=4, forget_authors=1, batch_size=7, streams=("full",))
    data.setup()
    return data


def build(data, exact=True, **kwargs):
    torch.manual_seed(0)
    network = CausalLM(config=TINY, **kwargs)
    return network, network.build(SimpleNamespace(tokenizer=data.tokenizer), exact=exact)


def test_losses_equal_row_by_row_arithmetic(data):
    network, module = build(data)
    (batch,) = data.iteration(0)["full"]
    losses = network.sample_losses(module, batch)
    for i, index in enumerate(batch["index"].tolist()):
        row = data.splits["full"][index]
        e = data.encoder.encode(row["question"], row["answer"])
        log_p = F.log_softmax(module(torch.tensor([e.input_ids])).logits[0].double(), dim=-1)
        tokens = range(e.prompt_length, len(e.input_ids))
        expected = -sum(log_p[t - 1, e.input_ids[t]] for t in tokens) / len(tokens)
        assert losses[i].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("size", [1, 3, None])
def test_micro_batches_hold_the_same_losses(data, size):
    network, module = build(data)
    (batch,) = data.iteration(0)["full"]
    whole = dict(zip(batch["index"].tolist(), network.sample_losses(module, batch).tolist(), strict=True))
    parts = network.split(batch, size)
    assert max(len(p["index"]) for p in parts) == (size or 7)
    again = {}
    for part in parts:
        assert part["attention_mask"].any(0).all(), "no column is padding only"
        again |= dict(zip(part["index"].tolist(), network.sample_losses(module, part).tolist(), strict=True))
    assert again == pytest.approx(whole, rel=1e-5)


def test_mode_kernel_and_precision(data):
    _, exact = build(data)
    assert not exact.training
    assert exact.config._attn_implementation == "eager"
    network, fast = build(data, exact=False, activation_checkpointing=True)
    assert fast.training
    assert fast.config._attn_implementation == "sdpa"
    with network.differentiable(fast):
        assert fast.config._attn_implementation == "eager"
    assert fast.config._attn_implementation == "sdpa"
    assert {p.dtype for p in fast.parameters()} == {torch.float32}
    assert network.uniform_loss(fast) == pytest.approx(torch.log(torch.tensor(len(data.tokenizer))).item())


def test_a_folder_without_weights_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="has no readable model"):
        CausalLM(path=str(tmp_path)).build(None, exact=True)


def test_a_configuration_without_architecture_is_named(data):
    with pytest.raises(UserError, match="no model_type"):
        CausalLM(config={"hidden_size": 8}).build(SimpleNamespace(tokenizer=data.tokenizer), exact=True)
