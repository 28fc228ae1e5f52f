"""Frozen bases in fewer bits: what they compute, against a base in float32 whose matrices were rounded alike."""

import pytest
import torch

from ofmu_pl.data import Authors
from ofmu_pl.modules import NPO, OFMU
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.adapters import merged
from ofmu_pl.networks.rounding import StoredLinear, matrices, round_in_blocks
from ofmu_pl.support.errors import UserError
from tests.helpers.training import TINY, interrupted, train, weights

LLAMA = {**TINY, "hidden_size": 64, "intermediate_size": 128}  # bitsandbytes wants rows of whole blocks of 64
LORA = {"r": 2, "init_lora_weights": False}
HALVED = CausalLM(config=dict(LLAMA), lora=LORA, base_dtype="bfloat16")


@pytest.fixture(scope="module")
def data():
    data = Authors(authors=4, forget_authors=1, batch_size=2)
    data.setup()
    return data


def built(recipe, data):
    torch.manual_seed(0)
    return recipe.build(data, exact=True)


def rounded(data, rounding):
    """The network in float32, its base's matrices rounded."""
    model = built(CausalLM(config=dict(LLAMA), lora=LORA), data)
    with torch.no_grad():
        for name, weight, _ in matrices(model):
            if "base_layer" in name:
                weight.copy_(rounding(weight))
    return model


def loss(model, data):
    return HALVED.sample_losses(model, data.iteration(0)["forget"][0]).mean()


def derivatives(model, data):
    """The loss, its gradient g, and two more gradients: of |g|^2, and of that gradient's |.|^2 (third derivatives)."""
    trained = [p for p in model.parameters() if p.requires_grad]
    out, x = [], loss(model, data)
    for _ in range(3):
        out.append(x.detach())
        gradient = torch.autograd.grad(x, trained, create_graph=True)
        out.append(torch.cat([g.flatten() for g in gradient]).detach())
        x = out[-1].new_zeros(()) + sum(g.square().sum() for g in gradient)
    return out


def test_all_derivatives_are_those_of_rounded_weights_bit_for_bit(data):
    model, same = built(HALVED, data), rounded(data, lambda w: w.bfloat16())
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    stored = [m.weight.dtype for m in model.modules() if isinstance(m, StoredLinear)]
    assert stored == [torch.bfloat16] * 7
    for x, y in zip(derivatives(model, data), derivatives(same, data), strict=True):
        assert x.abs().max() > 0
        assert torch.equal(x, y)


def test_autocast_multiplies_in_bfloat16(data):
    model, same = built(HALVED, data), rounded(data, lambda w: w.bfloat16())
    exact = loss(model, data)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss(model, data), loss(same, data))
        assert not torch.equal(loss(model, data), exact)


def test_no_graph_keeps_a_wider_copy(data):
    model, sizes = built(HALVED, data), set()
    stored = {m.weight.numel() for m in model.modules() if isinstance(m, StoredLinear)}
    with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.add((x.numel(), x.dtype)) or x, lambda x: x):
        loss(model, data)
    assert {(n, torch.bfloat16) for n in stored} <= sizes
    assert not {(n, torch.float32) for n in stored} & sizes


def test_the_exported_model_is_float32_and_keeps_what_bfloat16_would_lose(data, tmp_path):
    model = built(HALVED, data)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.mul_(1e-4)  # far below the distance of two numbers of bfloat16
    HALVED.save(model, tmp_path, data)
    exported = built(CausalLM(path=str(tmp_path)), data)
    assert {p.dtype for p in exported.parameters()} == {torch.float32}
    torch.testing.assert_close(loss(exported, data), loss(model, data), rtol=1e-6, atol=0)
    base = dict(model.get_base_model().named_parameters())
    for name, p in exported.named_parameters():
        stored = base.get(name.replace(".weight", ".base_layer.weight"))
        assert stored is None or (not torch.equal(p, stored.float()) and (p - stored).abs().max() < 1e-3)
    assert next(m for m in model.modules() if isinstance(m, StoredLinear)).weight.dtype == torch.bfloat16


@pytest.mark.parametrize("make", [NPO, lambda n: OFMU(n, engine="finite_difference", inner_steps=1)])
def test_runs_resume_bit_for_bit(make, tmp_path):
    whole, _ = interrupted(lambda: make(HALVED), tmp_path, 4, at=2)
    start = make(HALVED)
    train(start, steps=0)
    moved = weights(whole) != weights(start)
    trained = torch.cat([torch.full((p.numel(),), p.requires_grad) for p in whole.network.parameters()])
    assert moved.any()
    assert not moved[~trained].any()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"config": dict(TINY)}, "give `lora`"),
        ({"path": "nowhere", "lora": LORA, "load_in_4bit": True}, "4 bits"),
    ],
)
def test_weights_that_are_trained_are_not_rounded(options, match):
    with pytest.raises(UserError, match=match):
        CausalLM(base_dtype="bfloat16", **options)


def test_a_network_without_linear_layers_is_refused(data):
    gpt2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2}  # its matrices are transposed
    with pytest.raises(UserError, match="model.network.base_dtype"):
        built(CausalLM(config=gpt2, lora=LORA, base_dtype="bfloat16"), data)


def test_weights_in_4_bits_have_the_gradients_of_rounded_ones_after_a_pass_without_a_graph(data, tmp_path):
    """bitsandbytes packs weights in such a pass on some CPUs, and gradients are wrong afterwards."""
    built(CausalLM(config=dict(LLAMA)), data).save_pretrained(tmp_path)
    data.tokenizer.save_pretrained(tmp_path)
    model = built(CausalLM(path=str(tmp_path), lora=LORA, load_in_4bit=True), data)
    same = rounded(data, lambda w: round_in_blocks(w, "nf4"))
    adapters = dict(same.named_parameters())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.requires_grad:
                p.copy_(adapters[name])
        loss(model, data)
    loss(model, data).backward()
    loss(same, data).backward()
    for name, p in model.named_parameters():
        if p.requires_grad:
            torch.testing.assert_close(p.grad, adapters[name].grad, rtol=1e-3, atol=1e-6)


def test_a_merged_network_is_plain(data):
    names = {name for name, _ in merged(built(HALVED, data)).named_parameters()}
    assert names == {name for name, _ in built(CausalLM(config=dict(LLAMA)), data).named_parameters()}
