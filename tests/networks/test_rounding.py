"""Rounded matrices, against levels searched one by one."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from ofmu_pl.networks import SmallCNN
from ofmu_pl.networks.rounding import round_in_blocks, round_matrices, round_to_nearest
from tests.helpers.texts import make_model


def nearest(values, bits):
    """The nearest level of one channel, by trying all."""
    top = 2 ** (bits - 1) - 1
    levels = np.arange(-top, top + 1) * (np.abs(values).max() / top)
    return levels[np.abs(values[:, None] - levels).argmin(1)]


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("shape", "channels"), [((5, 7), 0), ((5, 7), 1), ((4, 3, 2, 2), 0)])
def test_each_channel_takes_its_nearest_levels(bits, shape, channels):
    torch.manual_seed(0)
    weight = torch.randn(shape, dtype=torch.float64)
    weight.select(channels, 0).zero_()
    rounded = round_to_nearest(weight, bits, channels)
    for one, other in zip(weight.movedim(channels, 0), rounded.movedim(channels, 0), strict=True):
        np.testing.assert_allclose(other.flatten(), nearest(one.flatten().numpy(), bits), atol=1e-12)


@pytest.mark.parametrize(
    "shape", [(6, 16), (5, 7), (3, 64), (4, 3, 3, 3)]
)  # (6, 16): wrong on a CPU without whole rows
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_blocks_of_64_take_the_nearest_of_16_levels(shape, kind):
    from bitsandbytes.functional import get_4bit_type

    torch.manual_seed(1)
    weight = torch.randn(shape)
    levels = get_4bit_type(kind, device="cpu", blocksize=64)
    expected = []
    for block in weight.flatten().split(64):
        scale = block.abs().max()
        expected.append(levels[(block[:, None] / scale - levels).abs().argmin(1)] * scale)
    torch.testing.assert_close(round_in_blocks(weight, kind).flatten(), torch.cat(expected))


def test_layers_are_rounded_and_embeddings_and_heads_are_not():
    model = make_model()
    before = {name: p.clone() for name, p in model.named_parameters()}
    names = round_matrices(model, 3)
    assert len(names) == 2 * 7  # two layers with four matrices of attention and three of the rest
    changed = {name for name, p in model.named_parameters() if not p.equal(before[name])}
    assert changed == {f"{name}.weight" for name in names}
    for name in names:
        assert all(len(row.unique()) <= 7 for row in model.get_submodule(name).weight)


def test_transposed_layers_of_gpt2_are_rounded_by_output_channel():
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=11))
    weight = model.transformer.h[0].mlp.c_fc.weight  # (in, out)
    expected = round_to_nearest(weight.detach().T, 4).T
    assert len(round_matrices(model, 4)) == 4
    torch.testing.assert_close(weight.detach(), expected)


def test_convolutions_are_rounded():
    model = SmallCNN(width=8).body(1, 10)
    kinds = [type(model.get_submodule(name)) for name in round_matrices(model, 2)]
    assert {nn.Conv2d, nn.Linear} == set(kinds)
