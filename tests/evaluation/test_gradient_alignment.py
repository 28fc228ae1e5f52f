"""How far forget rows' gradients agree, from one sum of unit vectors, against all pairs one by one."""

from functools import partial
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.ranks import ALONE, Ranks
from ofmu_pl.data import Authors, Digits
from ofmu_pl.data.encoded import Encoded, collate
from ofmu_pl.evaluation.gradient_alignment import ROWS, gradient_alignment, sum_of_units
from ofmu_pl.metrics import mean_cosine
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.networks.adapters import add_adapters
from tests.helpers.forked_ranks import on_two_ranks
from tests.helpers.texts import VOCABULARY, make_model
from tests.helpers.training import TINY

LOSSES = CausalLM(config={"model_type": "llama"}).sample_losses


def rows(n=5):
    """Batches of one row each, of different lengths."""
    generator = torch.Generator().manual_seed(1)
    tokens = [torch.randint(VOCABULARY, (4 + i,), generator=generator).tolist() for i in range(n)]
    return [collate([Encoded(x, [-100, -100, *x[2:]], 2)], [i], 0) for i, x in enumerate(tokens)]


def all_pairs(model, losses, batches):
    """The mean over pairs of the cosine of their gradients, each whole and in float64."""
    gradients = []
    for batch in batches:
        parts = torch.autograd.grad(losses(model, batch).sum(), trainable(model), allow_unused=True)
        flat = [torch.zeros_like(p) if g is None else g for g, p in zip(parts, trainable(model), strict=True)]
        gradients.append(torch.cat([x.reshape(-1).double() for x in flat]))
    pairs = combinations([g for g in gradients if g.norm() > 0], 2)
    return np.mean([torch.cosine_similarity(a, b, dim=0).item() for a, b in pairs])


def adapted():
    model = add_adapters(make_model(), {"r": 2}).double()
    for name, p in model.named_parameters():
        torch.nn.init.normal_(p, std=0.2) if "lora_B" in name else None
    assert 0 < len(trainable(model)) < len(list(model.parameters()))
    return model


@pytest.mark.parametrize("make", [make_model, adapted])
def test_the_sum_of_unit_vectors_gives_the_mean_over_all_pairs(make):
    """Of adapters it is their gradients alone; a row without a gradient counts for nothing."""
    model, batches = make(), rows(6)
    batches[2]["labels"][:] = -100
    square, n = sum_of_units(model, partial(LOSSES, model), batches)
    assert n == 5
    assert mean_cosine(square, n) == pytest.approx(all_pairs(model, LOSSES, batches), rel=1e-9)
    assert all(p.grad is None for p in model.parameters())


def test_parameters_of_16_bits_and_none_have_no_value():
    for model in (make_model().bfloat16(), make_model().requires_grad_(False)):
        assert sum_of_units(model, partial(LOSSES, model), rows()) == (0.0, 0)


def method(data, recipe):
    return SimpleNamespace(recipe=recipe, run=SimpleNamespace(data=data, ranks=ALONE))


def test_images_are_taken_as_they_are():
    """Not as they are trained on: a crop would give other numbers each time."""
    data = Digits(forget_classes=[3], train_items=300)
    data.setup()
    recipe = SmallCNN(width=8)
    model = recipe.build(data, exact=False).double()
    losses = lambda m, b: recipe.sample_losses(m, b | {"images": b["images"].double()})  # noqa: E731
    images, labels = data.images_of("forget")
    own = [{"images": images[[i]].double() / 255, "labels": labels[[i]]} for i in range(len(labels))]
    assert len(own) < ROWS
    found = gradient_alignment(method(data, SimpleNamespace(sample_losses=losses)), model, data)
    assert found.n == len(own)
    assert found.value == pytest.approx(all_pairs(model, losses, own), rel=1e-6)  # their pixels are float32


def test_at_most_so_many_rows_evenly_spaced_and_kept_by_content(monkeypatch, tmp_path):
    monkeypatch.setenv("OFMU_CACHE", str(tmp_path))
    data = Authors(authors=20, forget_authors=10)
    data.setup()
    recipe = CausalLM(config=dict(TINY))
    model = recipe.build(data, exact=False)
    few = gradient_alignment(method(data, recipe), model, data, rows=3)
    n = len(data.splits["forget"])
    assert n > ROWS
    wanted = [data.collate("forget", [i], 0) for i in (0, n // 3, 2 * n // 3)]
    assert few.value == pytest.approx(all_pairs(model, recipe.sample_losses, wanted), rel=1e-4)
    asked = []
    losses = lambda m, b: asked.append(b["ids"].item()) or recipe.sample_losses(m, b)  # noqa: E731
    watched = method(data, SimpleNamespace(sample_losses=losses))
    assert gradient_alignment(watched, model, data).n == len(set(asked)) == ROWS
    asked.clear()
    assert gradient_alignment(watched, model, data, rows=3) == few
    model.requires_grad_(False).lm_head.requires_grad_(True)
    assert not asked
    assert gradient_alignment(watched, model, data, rows=3).value != few.value


def test_ranks_with_whole_networks_and_with_shards_find_what_one_process_finds(tmp_path):
    def found(rank):
        sums = []
        for sharded in (False, True):
            model = make_model().float()
            if sharded:
                fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
            sums.append(sum_of_units(model, partial(LOSSES, model), rows(), Ranks(rank, 2, sharded)))
        return sums

    model = make_model().float()
    square, n = sum_of_units(model, partial(LOSSES, model), rows())
    for whole, shards in on_two_ranks(found, tmp_path):
        assert [list(whole), list(shards)] == [[pytest.approx(square, rel=1e-5), n]] * 2
