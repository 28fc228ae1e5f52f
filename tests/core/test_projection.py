"""Projections and moving averages of gradients, in float64, against arithmetic by hand."""

import copy

import pytest
import torch

from ofmu_pl.core.projection import MovingAverage, project_
from ofmu_pl.core.similarity import Cosine
from ofmu_pl.core.vectors import combine, dot, norm


def vector(seed):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=g, dtype=torch.float64) for shape in ((3, 2), (4,), ())]


def flat(x):
    return torch.cat([a.flatten() for a in x])


def test_what_is_left_is_orthogonal_and_nothing_else_is_lost():
    x, y = vector(0), vector(1)
    before, direction = flat(x), flat(y) / flat(y).norm()
    cosine = project_(x, y)
    torch.testing.assert_close(flat(x), before - direction * (direction @ before), rtol=1e-14, atol=1e-14)
    assert cosine == pytest.approx(float(torch.cosine_similarity(before, flat(y), dim=0)), rel=1e-14)
    assert abs(dot(x, y)) < 1e-14 * norm(x) * norm(y)


@pytest.mark.parametrize("seed", range(8))
def test_only_a_conflict_is_taken_out(seed):
    x, y = vector(seed), vector(100 + seed)
    before, inner = flat(x), dot(x, y)
    project_(x, y, conflicts_only=True)
    assert torch.equal(flat(x), before) == (inner >= 0)
    assert dot(x, y) >= -1e-14 * norm(x) * norm(y)


def test_the_derivatives_of_the_similarity_are_what_projections_leave():
    """``u_f = P_{g_f} g_r / (|g_f| |g_r|)``, and u_r alike: docs/methods.md."""
    g_f, g_r = vector(2), vector(3)
    u_f, u_r = (flat(combine(u)) * norm(g_f) * norm(g_r) for u in Cosine(g_f, g_r).gradient())
    for u, x, y in ((u_f, g_r, g_f), (u_r, g_f, g_r)):
        kept = [a.clone() for a in x]
        project_(kept, y)
        torch.testing.assert_close(u, flat(kept), rtol=1e-13, atol=1e-13)


def test_nothing_is_taken_out_along_nothing():
    x, zero = vector(0), [torch.zeros_like(a) for a in vector(0)]
    before = flat(x)
    assert project_(x, zero) == 0.0
    assert torch.equal(flat(x), before)
    assert project_(zero, x) == 0.0
    assert not flat(zero).any()


def test_the_average_is_the_geometric_sum_and_moves_nothing():
    theta = [torch.nn.Parameter(a.clone()) for a in vector(9)]
    average, gradients = MovingAverage(theta, weight=0.3), [vector(k) for k in range(4)]
    assert "lr" in average.param_groups[0], "which Lightning's LearningRateMonitor reads"
    for gradient in gradients:
        found = average.update([g.clone() for g in gradient])
    expected = sum(0.3 * 0.7 ** (3 - k) * flat(g) for k, g in enumerate(gradients))
    torch.testing.assert_close(flat(found), expected, rtol=1e-14, atol=1e-14)
    assert all(torch.equal(p, a) and p.grad is None for p, a in zip(theta, vector(9), strict=True))
    again = MovingAverage(theta, weight=0.3)
    again.load_state_dict(copy.deepcopy(average.state_dict()))
    further = vector(5)
    assert torch.equal(flat(again.update(further)), flat(average.update(further)))
