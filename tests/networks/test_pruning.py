"""Pruned matrices: exactly so many zeros, where the smallest weights were."""

import pytest
import torch
from torch import nn

from ofmu_pl.networks.rounding import prune_matrices
from tests.helpers.texts import make_model


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_exactly_the_smallest_weights_of_each_matrix_are_0(share):
    model = make_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    names = prune_matrices(model, share)
    assert len(names) == 2 * 7  # those that are rounded, without embeddings and head
    for name, p in model.named_parameters():
        was = before[name]
        zeros = p == 0
        if name.removesuffix(".weight") not in names:
            assert p.equal(was)
            continue
        assert zeros.sum() == round(share * p.numel())
        assert p[~zeros].equal(was[~zeros])
        if 0 < share < 1:
            assert was[zeros].abs().max() <= was[~zeros].abs().min()


@pytest.mark.parametrize("values", [[1.0] * 6, [0.0, 0.0, 0.0, 0.0, 2.0, 3.0]])
def test_equal_weights_and_zeros_that_were_there(values):
    layer = nn.Linear(6, 1)
    layer.weight.data.copy_(torch.tensor([values]))
    prune_matrices(nn.Sequential(layer), 0.5)
    assert (layer.weight == 0).sum() == max(3, values.count(0.0))
