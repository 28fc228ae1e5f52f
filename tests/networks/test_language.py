"""Losses of a language model, whole and cut into micro-batches."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from ofmu_pl.data import Authors
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from tests.helpers.training import TINY as ONE_LAYER

TINY = {**ONE_LAYER, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def data():
    data = Authors(authors=4, forget_authors=1, batch_size=7, streams=("full",))
    data.setup()
    return data


def without_rows(data):
    return SimpleNamespace(tokenizer=data.tokenizer, lengths={}, streams=())


def build(data, exact=True, **kwargs):
    torch.manual_seed(0)
    network = CausalLM(config=TINY, **kwargs)
    return network, network.build(without_rows(data), exact=exact)


def test_losses_equal_row_by_row_arithmetic(data):
    network, module = build(data)
    (batch,) = data.iteration(0)["full"]
    losses = network.sample_losses(module, batch)
    for i, index in enumerate(batch["ids"].tolist()):
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
    whole = dict(zip(batch["ids"].tolist(), network.sample_losses(module, batch).tolist(), strict=True))
    parts = network.split(batch, size)
    assert max(len(p["ids"]) for p in parts) == (size or 7)
    again = {}
    for part in parts:
        assert part["attention_mask"].any(0).all(), "no column is padding only"
        again |= dict(zip(part["ids"].tolist(), network.sample_losses(module, part).tolist(), strict=True))
    assert again == pytest.approx(whole, rel=1e-5)


def test_mode_kernel_and_precision(data):
    _, exact = build(data)
    assert not exact.training
    assert exact.config._attn_implementation == "eager"
    network, fast = build(data, exact=False, activation_checkpointing=True)
    assert fast.training
    assert fast.config._attn_implementation == "sdpa"
    assert {p.dtype for p in fast.parameters()} == {torch.float32}
    assert network.uniform_loss(fast) == pytest.approx(torch.log(torch.tensor(len(data.tokenizer))).item())


def test_a_folder_without_weights_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="readable .*model.safetensors"):
        CausalLM(path=str(tmp_path)).build(None, exact=True)


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    """An exported model with two embeddings, in two shards."""
    folder = tmp_path_factory.mktemp("model")
    build(data)[1].save_pretrained(folder, max_shard_size="80KB")
    assert len(list(folder.glob("*.safetensors"))) == 2
    return folder


def damaged(folder, copy, change):
    """A copy whose tensors (one dictionary of all shards) are changed."""
    shutil.copytree(folder, copy)
    shards = sorted(copy.glob("*.safetensors"))
    tensors = {name: x for shard in shards for name, x in load_file(shard).items()}
    change(tensors)
    for shard in [*shards, copy / "model.safetensors.index.json"]:
        shard.unlink()
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


NORM, HEAD = "model.layers.1.input_layernorm.weight", "lm_head.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.pop(NORM), f"missing: {NORM}"),
        (lambda x: x.pop(HEAD), f"missing: {HEAD}"),
        (lambda x: x.update({"model.layers.2.mlp.bias": torch.zeros(2)}), "unexpected: model.layers.2.mlp.bias"),
        (lambda x: x.update({NORM: torch.ones(17)}), rf"{NORM} \(\[17\], .*\[16\]\)"),
        (lambda x: x.update({HEAD: torch.ones(5, 16)}), rf"{HEAD} \(\[5, 16\], .*\[1000, 16\]\)"),
    ],
)
def test_a_tensor_that_is_missing_unexpected_or_misshapen_is_named(folder, tmp_path, change, words):
    with pytest.raises(UserError, match=words) as refusal:
        CausalLM(path=str(damaged(folder, tmp_path / "model", change))).build(None, exact=True)
    assert str(tmp_path / "model") in str(refusal.value)


def test_buffers_that_older_versions_wrote_are_no_fault(folder, data, tmp_path):
    def change(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    copy = damaged(folder, tmp_path / "model", change)
    CausalLM(path=str(copy)).build(data, exact=True)
    shape = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2}
    gpt2 = CausalLM(config=shape).build(without_rows(data), exact=True)
    gpt2.save_pretrained(tmp_path / "gpt2")  # ties its embeddings: the file holds one of the two
    tensors = load_file(tmp_path / "gpt2/model.safetensors")
    tensors |= {"transformer.h.0.attn.bias": torch.ones(1, 1, 8, 8), "transformer.h.0.attn.masked_bias": torch.ones(1)}
    save_file(tensors, tmp_path / "gpt2/model.safetensors", metadata={"format": "pt"})
    again = CausalLM(path=str(tmp_path / "gpt2")).build(data, exact=True)
    assert all(torch.equal(a, b) for a, b in zip(gpt2.parameters(), again.parameters(), strict=True))


GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 64}
DROPPING = [
    {**TINY, "attention_dropout": 0.5},
    {**GPT2, "resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5},
    {"model_type": "opt", "hidden_size": 16, "ffn_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    | {"word_embed_proj_dim": 16, "dropout": 0.5, "attention_dropout": 0.5, "layerdrop": 0.5},
]


@pytest.mark.parametrize("config", DROPPING, ids=lambda config: config["model_type"])
@pytest.mark.parametrize("exact", [True, False])
def test_checkpointing_brings_no_dropout(data, config, exact, tmp_path):
    """The same losses and gradients as without, and an export that says the probabilities of the original."""
    source = without_rows(data)
    (batch,) = data.iteration(0)["full"]
    batch = {k: x[:2, :40] for k, x in batch.items() if x.dim() == 2}
    found = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        network = CausalLM(config=config, activation_checkpointing=checkpointing)
        module = network.build(source, exact=exact)
        loss = network.sample_losses(module, batch).sum()
        found.append([loss, *torch.autograd.grad(loss, list(module.parameters()))])
    assert module.training
    for plain, checkpointed in zip(*found, strict=True):
        torch.testing.assert_close(checkpointed, plain)
    network.save(module, tmp_path, source)
    exported = json.loads((tmp_path / "config.json").read_text())
    assert {name: exported[name] for name in config if "drop" in name} == {k: 0.5 for k in config if "drop" in k}
    assert not any(value for name, value in module.config.to_dict().items() if name in config and "drop" in name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hiden_size": 16}, "'llama' .*hiden_size"),
        ({"hidden_size": 15}, ".15.*.2."),
        ({"hidden_size": "x"}, "'hidden_size' .*int,"),
        ({"hidden_size": 0}, "ZeroDivisionError"),
        ({"num_key_value_heads": 3}, "RuntimeError"),
        ({"hidden_act": "foo"}, "KeyError: 'foo'"),
        ({"model_type": "lama"}, " lama"),
        ({"model_type": None}, " None"),
        ({"num_hidden_layers": 10_000_000}, "num_hidden_layers"),
        ({"model_type": "resnet"}, "'resnet' .*vocab_size"),
    ],
)
def test_an_architectures_wrong_arguments(data, change, reason):
    network = CausalLM(config={**TINY, **change})
    with pytest.raises(UserError, match=f"model.network.config .*{reason}"):
        network.build(without_rows(data), exact=True)
