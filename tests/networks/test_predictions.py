"""Losses whose logits are made some places at a time are those of all logits at once, with every derivative."""

from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM

from ofmu_pl import losses as L
from ofmu_pl.modules import OFMU
from ofmu_pl.modules.lower_level import HeldOutLevels
from ofmu_pl.networks import CausalLM, adapters, predictions
from ofmu_pl.networks.predictions import Predictions, predict
from tests.helpers.methods import TEXTS
from tests.helpers.training import TINY, train

V = 13
LOSSES = {
    "nll": (L.token_nll, 0),
    "weighted_ascent": (partial(L.weighted_ascent, beta_1=1.0, beta_2=0.5), 0),
    "undial": (partial(L.undial, beta=2.0), 1),
    "ce_u": (L.ce_u, 0),
    "logit_margin": (L.logit_margin, 0),
    "margins": (L.margins, 0),
    "margin_hinge": (partial(L.margin_hinge, rivals=3, bound=-1.0, buffer=0.5), 0),
    "js_to_token": (L.js_to_token, 0),
    "kl": (L.kl, 1),
    "js": (L.js, 1),
}


IN_LAYERS = {"rmu"}
"""Methods whose losses are of hidden states alone."""


def language_model(kind="gpt2", **fields):
    """A small model in float64; GPT-2's layers stay in it."""
    shape = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 12} if kind == "gpt2" else TINY
    fields = {name: x for name, x in shape.items() if name != "model_type"} | fields
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind,
        vocab_size=V,
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.5,
        tie_word_embeddings=False,
        **fields,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").double().eval()


@pytest.fixture
def batch():
    """Three rows, of which the second has no answer."""
    torch.manual_seed(1)
    ids = torch.randint(V, (3, 9))
    labels = ids.clone()
    labels[0, :4] = labels[1] = labels[2, :6] = labels[2, 8:] = L.IGNORED
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


@pytest.fixture
def in_chunks(monkeypatch):
    """Makes so many places' logits at a time; returns the numbers of places of which they are made again."""

    def chunked(places, vocabulary=V):
        made = []
        monkeypatch.setattr(predictions, "CHUNK", places * vocabulary)
        monkeypatch.setattr(predictions, "SHARE", 0)
        monkeypatch.setattr(
            predictions, "checkpoint", lambda f, x, y, **how: made.append(len(x)) or checkpoint(f, x, y, **how)
        )
        return made

    return chunked


def derivatives(value, parameters):
    """A value, its gradient, a Hessian's product, and a third derivative's."""
    generator = torch.Generator().manual_seed(2)
    u = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    found = [(value,)]
    for _ in range(3):
        last = sum((x * d).sum() for x, d in zip(found[-1], u, strict=True)) if len(found) > 1 else value
        found.append(torch.autograd.grad(last, parameters, create_graph=True, materialize_grads=True))
    return [x.detach() for order in found for x in order]


@pytest.mark.parametrize("adapted", [(), ("c_attn",), ("c_attn", "lm_head")])
@pytest.mark.parametrize("name", LOSSES)
def test_chunks_are_exact(name, adapted, batch, in_chunks):
    loss, others = LOSSES[name]
    model, recipe = language_model(), CausalLM("unused")
    if adapted:
        lora = {"r": 2, "target_modules": list(adapted), "init_lora_weights": False, "fan_in_fan_out": True}
        model = adapters.add_adapters(model, lora).double()
    parameters = [p for p in model.parameters() if p.requires_grad]
    frozen = Predictions(torch.randn(3, 9, V, dtype=torch.float64, generator=torch.Generator().manual_seed(3)))
    logits = model(input_ids=batch["input_ids"]).logits
    targets = L.shifted(batch["labels"])
    whole = loss(logits, targets, *[frozen.logits()] * others)
    whole = whole if whole.dim() == 1 else L.sample_mean(whole, targets)
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)  # as losses that bend weigh rows
    expected = derivatives(whole @ weights, parameters)

    made = in_chunks(3)
    said, found = recipe.predict(model, batch)
    assert torch.equal(found, targets)
    values = said.mean(loss, targets, *[frozen] * others)
    again = [] if adapted == ("c_attn",) else [3, 3]
    assert made == again, "a frozen output layer runs once, and so does another's last chunk"
    assert said.head is not None
    assert values[1] == 0
    torch.testing.assert_close(derivatives(values @ weights, parameters), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("trained", "rows"), [(True, [8, 2]), (False, [3, 3, 3, 1])])
def test_a_trained_output_layer_has_chunks_as_large_as_itself(trained, rows, monkeypatch):
    monkeypatch.setattr(predictions, "CHUNK", 3 * V)
    head, made = torch.nn.Linear(8, V), []
    head.register_forward_hook(lambda m, args, out: made.append(len(out)))
    with torch.no_grad():
        Predictions(torch.zeros(2, 5, 8), head, V, trained).values(L.token_nll, torch.zeros(2, 5, dtype=torch.long))
    assert made == rows


def test_places_without_labels_have_no_logits(batch):
    model, seen = language_model(), []
    model.lm_head.register_forward_hook(lambda m, args, out: seen.append(out.shape[:-1].numel()))
    with torch.no_grad():
        said, targets = CausalLM("unused").predict(model, batch)
        seen.clear()  # a look at what the model does with logits
        again, _ = CausalLM("unused").predict(model, batch)
        assert seen == [0]
        again.values(L.token_nll, targets)
    assert seen == [0, 7]
    torch.testing.assert_close(said.logits(), model(batch["input_ids"]).logits, rtol=1e-12, atol=0)


@pytest.mark.parametrize("empty", [False, True])
def test_rows_without_labels(empty, batch):
    """A batch of them has losses 0, and no gradient."""
    model = language_model()
    batch["labels"][:] = L.IGNORED
    said, targets = CausalLM("unused").predict(model, batch)
    losses = said.mean(L.kl if empty else L.logit_margin, targets, *[said] * empty)
    gradients = torch.autograd.grad(losses.sum(), [*model.parameters()], materialize_grads=True)
    assert losses.tolist() == [0, 0, 0]
    assert not any(g.any() for g in gradients)


@pytest.mark.parametrize(
    ("kind", "fields", "splits"),
    [
        ("llama", {}, True),
        ("gemma2", {"head_dim": 8, "num_key_value_heads": 2, "final_logit_softcapping": 3.0}, False),
        ("gemma2", {"head_dim": 8, "num_key_value_heads": 2, "final_logit_softcapping": None}, True),
        ("granite", {"logits_scaling": 7.0}, False),
        ("cohere", {"logit_scale": 0.5}, False),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_models_that_do_more_with_logits(kind, fields, splits, known, batch, in_chunks, monkeypatch):
    """Their numbers are their own, by the fields of their configuration, and by a look where these are not known."""
    if not known:
        monkeypatch.setattr(predictions, "AFTER_HEAD", set())
    model = language_model(kind, **fields)
    targets = L.shifted(batch["labels"])
    in_chunks(2)
    said = predict(model, input_ids=batch["input_ids"])
    expected = model(input_ids=batch["input_ids"]).logits
    assert (said.head is not None) == splits
    torch.testing.assert_close(
        said.values(L.token_nll, targets), L.token_nll(expected, targets), rtol=1e-12, atol=1e-12
    )


def test_a_place_has_several_values(in_chunks):
    torch.manual_seed(0)
    said, targets = Predictions(torch.randn(2, 3, V)), torch.tensor([[1, L.IGNORED, 2], [L.IGNORED, 3, 4]])
    made = in_chunks(3)
    found = said.values(lambda z, y: torch.cat([L.token_nll(z, y), L.margins(z, y)], 1), targets)
    assert made == [3]
    mask = targets != L.IGNORED
    torch.testing.assert_close(found[..., 0], L.token_nll(said.logits(), targets))
    torch.testing.assert_close(found[mask][:, 1], L.margins(said.logits(), targets)[mask])


def trained(make, **data):
    train(module := make(), steps=2, **data)
    return torch.cat([p.detach().flatten() for p in module.trained.parameters()])


@pytest.mark.parametrize("name", TEXTS)
def test_methods_train_alike(name, in_chunks):
    make = partial(TEXTS[name], CausalLM(config=TINY | {"num_hidden_layers": 2}))
    expected = trained(make)
    made = in_chunks(7, vocabulary=1000)
    found = trained(make)
    assert bool(made) == (name not in IN_LAYERS)
    tolerance = 1e-4 if name == "negation" else 1e-5  # which steps by Adam
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("engine", ["autograd", "finite_difference"])
def test_ofmu_with_a_guess_trains_alike(engine, in_chunks):
    lower = partial(HeldOutLevels, ngram_weight=0.5)
    make = partial(OFMU, CausalLM(config=TINY), lower=lower, engine=engine, inner_steps=2, micro_batch_size=2)
    expected = trained(make, holdout_authors=1)
    made = in_chunks(7, vocabulary=1000)
    found = trained(make, holdout_authors=1)
    assert made
    tolerance = 1e-5 if engine == "autograd" else 1e-4  # a step of differences divides by its length
    torch.testing.assert_close(found, expected, rtol=10 * tolerance, atol=tolerance)


def test_adapters_train_alike_beside_their_frozen_base(in_chunks):
    network = CausalLM(config=TINY, lora={"r": 2, "target_modules": ["q_proj", "lm_head"]})
    make = partial(TEXTS["kl"], network, optimizer=lambda p: torch.optim.SGD(p, lr=0.5))
    expected = trained(make)
    made = in_chunks(7, vocabulary=1000)
    found = trained(make)
    assert made
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
