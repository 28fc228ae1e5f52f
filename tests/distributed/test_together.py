"""What two ranks with shards score, with unequal numbers of rows, equals what one process does."""

from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM

from ofmu_pl.evaluation.images import score_images
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.networks.adapters import add_adapters
from ofmu_pl.training import together as module
from ofmu_pl.training.together import fits, together
from tests.evaluation.test_scoring import ROWS, Letters
from tests.helpers.forked_ranks import on_two_ranks
from tests.helpers.sharded import shard
from tests.helpers.texts import SHAPE

WAYS = [pytest.param(True, id="whole"), pytest.param(False, id="shards")]


def language_model(**shape):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SHAPE, **shape)).eval()


def adapted():
    model = add_adapters(language_model(), {"r": 2}).eval()
    for name, p in model.named_parameters():
        torch.nn.init.normal_(p, std=0.2) if "lora_B" in name else None
    return model


def classifier():
    """With statistics of its own, which no score may move."""
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.Linear(32, 3)
    network = nn.Sequential(*layers)
    network(torch.randn(20, 1, 4, 4))
    return network.eval()


class Images:
    """Sets of which the ranks have unequal numbers of batches."""

    def __init__(self):
        self.evaluation_sets = {name: np.arange(n) + 3 for name, n in (("forget", 1), ("retain", 1001), ("test", 3))}

    def images_of(self, name):
        n = len(self.evaluation_sets[name])
        pixels = torch.arange(n * 16) * 41 % 251
        return pixels.view(n, 1, 4, 4).byte(), torch.arange(n) % 3


def texts_of(model, rows):
    return score_rows(model, Letters(), {"forget": ROWS[:rows], "holdout": ROWS[:1]}, max_new_tokens=6)


def images_of(network):
    return score_images(network, Images(), ["forget", "retain", "test"])


SCORED = {
    "three rows": (language_model, partial(texts_of, rows=3)),
    "tied": (partial(language_model, tie_word_embeddings=True), partial(texts_of, rows=3)),
    "adapters": (adapted, partial(texts_of, rows=3)),
    "a rank without rows": (language_model, partial(texts_of, rows=1)),
    "images": (classifier, images_of),
}


def after_scoring(network):
    """Whether nothing is whole or attached any more, and a step on the shards can be taken."""
    cut = all(isinstance(p, DTensor) for p in network.parameters())
    x = torch.ones(2, 1, 4, 4) if isinstance(network, nn.Sequential) else torch.arange(4)[None]
    out = network(x)
    getattr(out, "logits", out).square().sum().backward()
    return cut and all(p.grad is not None for p in network.parameters() if p.requires_grad)


@pytest.mark.parametrize("whole", WAYS)
def test_ranks_score_on_shards_what_one_process_scores(whole, tmp_path):
    def found(rank):
        scored = {}
        for name, (make, score) in SCORED.items():
            shard(network := make())
            with mock.patch.object(module, "fits", return_value=whole):
                scored[name] = {key: s.as_dict() for key, s in score(network).items()}, after_scoring(network)
        return scored

    alone = {name: score(make()) for name, (make, score) in SCORED.items()}
    for ranks in on_two_ranks(found, tmp_path):
        for name, (sets, sound) in ranks.items():
            assert sound, name
            assert sets.keys() == alone[name].keys()
            for key, expected in alone[name].items():
                for field, value in expected.as_dict().items():
                    same = (
                        value if value is None or "generations" in field else pytest.approx(np.asarray(value), rel=1e-5)
                    )
                    assert sets[key][field] == same, (name, key, field)


def passes(rank, whole, own):
    """How many layers are whole in the last one, by passes of a rank, of which so many are its own in each context."""
    made = []
    shard(model := language_model())

    def look(*_):
        assert not torch.is_grad_enabled()
        made.append(sum(not isinstance(layer.mlp.up_proj.weight, DTensor) for layer in model.model.layers))

    model.model.layers[-1].mlp.register_forward_pre_hook(look)
    ids = torch.arange(5)[None]
    with mock.patch.object(module, "fits", return_value=whole):
        for n in own:
            with together(model, partial(model, input_ids=ids[:, :1])):
                for _ in range(n[rank]):
                    model(input_ids=ids)
    return made


@pytest.mark.parametrize(("whole", "expected"), [(True, [[2] * 5, [2] * 2]), (False, [[1] * 6] * 2)])
def test_ranks_without_rows_pass_along_only_where_layers_are_cut(whole, expected, tmp_path):
    """And then one layer is whole at a time."""
    assert on_two_ranks(partial(passes, whole=whole, own=[(3, 0), (0, 0), (1, 2), (1, 0)]), tmp_path) == expected


def passing_once(model):
    ids = torch.arange(5)[None]
    with together(model, partial(model, input_ids=ids[:, :1])):
        model(input_ids=ids)
        raise ZeroDivisionError


@pytest.mark.parametrize("whole", WAYS)
def test_an_error_of_all_ranks_leaves_shards(whole, tmp_path):
    def found(_):
        shard(model := language_model())
        with mock.patch.object(module, "fits", return_value=whole), pytest.raises(ZeroDivisionError):
            passing_once(model)
        return after_scoring(model)

    assert on_two_ranks(found, tmp_path) == [True, True]


def test_the_fullest_rank_decides(tmp_path):
    """Ranks share the host's free memory, and a network may take half of a rank's share."""

    def found(rank):
        shard(model := language_model())
        size = sum(p.numel() for p in model.parameters()) * 4
        decided = []
        for spare in (8, -8):
            available = 2 * 2 * size + (spare if rank else 10**9)
            with mock.patch.object(module.psutil, "virtual_memory", lambda x=available: mock.Mock(available=x)):
                decided.append(fits(model))
        return decided

    assert on_two_ranks(found, tmp_path) == [[True, False]] * 2


def test_a_whole_network_is_left_as_it_is():
    model = language_model()
    with together(model, lambda: pytest.fail("no pass is needed")):
        assert not model(input_ids=torch.arange(3)[None]).logits.requires_grad
