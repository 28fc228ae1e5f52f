"""Embeddings against the states they are made of; cosines and what they do not see."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from ofmu_pl.analysis import cosine, embed
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.support.errors import UserError
from tests.analysis.test_gradients import rows
from tests.helpers.texts import make_model


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
    with pytest.raises(UserError, match="same architecture"):
        cosine(torch.ones(3, 4), torch.ones(3, 5))
    with pytest.raises(UserError, match="no sample to embed"):
        embed(SmallCNN(), SmallCNN(width=8).body(1, 6), [])
