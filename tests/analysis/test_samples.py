"""Gradients and embeddings of samples, against those worked out by hand."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from ofmu_pl.analysis import cosine, embed, mean_gradient, sample_gradients
from ofmu_pl.core.vectors import dot, norm
from ofmu_pl.data.encoded import Encoded, collate
from ofmu_pl.losses import IGNORED
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.support.errors import UserError
from tests.helpers.texts import make_model


class Squares(SmallCNN):
    """Half the squared error of one output."""

    def sample_losses(self, module, batch):
        return (module(batch["images"])[:, 0] - batch["labels"]).square() / 2


def points(n=7, d=4, classes=3):
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (n,), generator=rng)
    return {"images": torch.randn(n, d, generator=rng, dtype=torch.float64), "labels": labels}


def rows(n=5):
    """Conversations of different lengths, and their batch."""
    rng = np.random.default_rng(1)
    encoded = []
    for prompt, answer in rng.integers(2, 9, (n, 2)):
        ids = rng.integers(0, 11, prompt + answer).tolist()
        encoded.append(Encoded(ids, [IGNORED] * int(prompt) + ids[prompt:], int(prompt)))
    return encoded, collate(encoded, range(n), 0)


def test_linear_regression():
    batch, module = points(), nn.Linear(4, 1).double()
    x, y = batch["images"].numpy(), batch["labels"].numpy()
    weight, bias = module.weight.detach().numpy()[0], module.bias.item()
    residual = x @ weight + bias - y
    by_hand = residual[:, None] * np.column_stack([x, np.ones(len(x))])
    direction = [torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=torch.float64), torch.tensor([0.25], dtype=torch.float64)]
    d = np.array([1.0, -2.0, 0.5, 3.0, 0.25])
    found = sample_gradients(Squares(), module, [batch], direction)
    norms = np.linalg.norm(by_hand, axis=1)
    np.testing.assert_allclose(found.losses, residual**2 / 2, rtol=1e-14)
    np.testing.assert_allclose(found.norms, norms, rtol=1e-14)
    np.testing.assert_allclose(found.similarities, by_hand @ d / norms / np.linalg.norm(d), rtol=1e-12)
    mean = mean_gradient(Squares(), module, [batch])
    np.testing.assert_allclose(torch.cat([x.flatten() for x in mean]).numpy(), by_hand.mean(axis=0), rtol=1e-14)


def test_logistic_regression():
    batch, module = points(), nn.Linear(4, 3).double()
    x, y = batch["images"].numpy(), np.eye(3)[batch["labels"].numpy()]
    z = module(batch["images"]).detach().numpy()
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    by_hand = (p - y)[:, :, None] * np.concatenate([x, np.ones((len(x), 1))], axis=1)[:, None, :]  # (N, classes, 5)
    mean = mean_gradient(SmallCNN(), module, [batch])
    np.testing.assert_allclose(torch.column_stack(mean).numpy(), by_hand.mean(axis=0), rtol=1e-12, atol=1e-15)
    found = sample_gradients(SmallCNN(), module, [batch], mean)
    norms = np.linalg.norm(by_hand, axis=(1, 2))
    np.testing.assert_allclose(found.losses, -np.log((p * y).sum(axis=1)), rtol=1e-13)
    np.testing.assert_allclose(found.norms, norms, rtol=1e-13)
    products = np.einsum("ncd,cd->n", by_hand, by_hand.mean(axis=0))
    np.testing.assert_allclose(found.similarities, products / norms / np.linalg.norm(by_hand.mean(axis=0)), rtol=1e-12)


def networks():
    torch.manual_seed(0)
    images = {"images": torch.rand(6, 1, 8, 8, dtype=torch.float64), "labels": torch.arange(6)}
    return {
        "text": (CausalLM(path="unused"), make_model(), rows()[1]),
        "batch norm": (recipe := SmallCNN(width=8, norm="batch"), recipe.body(1, 6).double(), images),
    }


@pytest.mark.parametrize("kind", ["text", "batch norm"])
def test_samples_add_up_to_the_mean_and_see_nothing_of_each_other(kind):
    recipe, module, batch = networks()[kind]
    module.train()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    halves = [{k: x[:2] for k, x in batch.items()}, {k: x[2:] for k, x in batch.items()}]
    mean = mean_gradient(recipe, module, halves)
    found = sample_gradients(recipe, module, [batch], mean)
    # <mean_i g_i, d> = mean_i |g_i||d| cos_i, here with d the mean itself
    assert (found.norms * found.similarities).mean() * norm(mean) == pytest.approx(dot(mean, mean), rel=1e-12)
    parted = sample_gradients(recipe, module, halves, mean)
    np.testing.assert_allclose(parted.norms, found.norms, rtol=1e-12)
    np.testing.assert_allclose(parted.similarities, found.similarities, rtol=1e-9)
    whole = mean_gradient(recipe, module, [batch])
    assert norm([a - b for a, b in zip(mean, whole, strict=True)]) < 1e-12 * norm(whole)
    assert all(m.training for m in module.modules())
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items()), "no statistics moved"
    assert all(p.grad is None for p in module.parameters())


def test_a_row_s_gradient_is_that_of_its_loss_without_padding():
    encoded, batch = rows()
    model, recipe = make_model(), CausalLM(path="unused")
    direction = [torch.ones_like(p) for p in model.parameters()]
    found = sample_gradients(recipe, model, [batch], direction)
    for i, e in enumerate(encoded):
        logits = model(torch.tensor([e.input_ids])).logits[0, e.prompt_length - 1 : -1]
        loss = -logits.log_softmax(1)[torch.arange(len(logits)), torch.tensor(e.input_ids[e.prompt_length :])].mean()
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        size = math.sqrt(sum(g.square().sum().item() for g in gradient))
        assert found.losses[i] == pytest.approx(loss.item(), rel=1e-12)
        assert found.norms[i] == pytest.approx(size, rel=1e-10)
        of_ones = sum(g.sum().item() for g in gradient) / size / math.sqrt(sum(p.numel() for p in direction))
        assert found.similarities[i] == pytest.approx(of_ones, rel=1e-8, abs=1e-12)


def test_frozen_parameters_do_not_count_and_no_gradient_has_no_direction():
    batch, module = points(), nn.Linear(4, 3, bias=False).double()
    module.weight.requires_grad_(False)
    network = nn.Sequential(module, nn.Linear(3, 3).double())
    mean = mean_gradient(SmallCNN(), network, [batch])
    assert [x.shape for x in mean] == [(3, 3), (3,)]
    dead = {"images": torch.zeros(1, 4, dtype=torch.float64), "labels": torch.tensor([0])}
    found = sample_gradients(SmallCNN(), nn.Linear(4, 3, bias=False).double(), [dead], [torch.ones(3, 4).double()])
    assert (found.norms[0], found.similarities[0]) == (0.0, 0.0)


def test_nothing_and_broken_weights_are_refused():
    module = nn.Linear(4, 3).double()
    with pytest.raises(UserError, match="split"):
        mean_gradient(SmallCNN(), module, [])
    module.weight.data[0, 0] = math.nan
    with pytest.raises(UserError, match="finite"):
        mean_gradient(SmallCNN(), module, [points()])


def test_text_is_the_mean_of_the_last_states_over_the_answer():
    encoded, batch = rows()
    model = make_model()
    found = embed(CausalLM(path="unused"), model, [batch])
    assert (found.shape, found.dtype) == ((5, 32), torch.float64)
    with torch.no_grad():
        for i, e in enumerate(encoded):
            states = model(torch.tensor([e.input_ids]), output_hidden_states=True).hidden_states[-1][0]
            torch.testing.assert_close(found[i], states[e.prompt_length :].mean(0), rtol=1e-10, atol=1e-12)
    prompts = batch["labels"].clone()
    prompts[:, -1] = batch["input_ids"][:, -1]  # other answer tokens, other embedding
    assert not torch.allclose(embed(CausalLM(path="unused"), model, [{**batch, "labels": prompts}]), found)


def test_an_image_is_what_the_last_layer_reads():
    torch.manual_seed(0)
    recipe = SmallCNN(width=8, norm="batch")
    module = recipe.body(1, 6).double().train()
    images = {"images": torch.rand(6, 1, 8, 8, dtype=torch.float64), "labels": torch.arange(6)}
    before = copy.deepcopy(module.state_dict())
    found = embed(recipe, module, [{k: x[:4] for k, x in images.items()}, {k: x[4:] for k, x in images.items()}])
    assert found.shape == (6, 16)
    module.eval()
    with torch.no_grad():
        torch.testing.assert_close(found @ module[-1].weight.T + module[-1].bias, module(images["images"]))
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())


def test_a_cosine_is_1_with_itself_and_sees_directions_only():
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.randn(50, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    np.testing.assert_allclose(cosine(x, x), 1, atol=1e-14)
    by_hand = (x * y).sum(1) / x.norm(dim=1) / y.norm(dim=1)
    np.testing.assert_allclose(cosine(x, y), by_hand.numpy(), rtol=1e-12)
    np.testing.assert_allclose(cosine(y, -3 * x), -cosine(x, y), rtol=1e-12)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(UserError, match=r"\(3, 4\).*\(3, 5\)"):
        cosine(torch.ones(3, 4), torch.ones(3, 5))
    with pytest.raises(UserError, match="split"):
        embed(SmallCNN(), SmallCNN(width=8).body(1, 6), [])
