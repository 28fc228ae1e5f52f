"""Polyak's step against closed forms."""

import pytest
import torch

from ofmu_pl.core.polyak import Polyak


def parameter(*values):
    return torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))


def step(optimizer, theta, loss, wanted):
    value = loss(theta)
    (theta.grad,) = torch.autograd.grad(value, theta)
    optimizer.step(gap=value.item() - wanted)


def test_a_plane_is_followed_to_its_goal_in_one_step():
    theta, slope = parameter(1.0, -2.0, 0.5), torch.tensor([3.0, -0.1, 20.0], dtype=torch.float64)
    step(Polyak([theta]), theta, lambda x: slope @ x, wanted=-7.0)
    assert (slope @ theta).item() == pytest.approx(-7.0, abs=1e-9)


def test_twice_the_step_is_the_bottom_of_a_parabola():
    theta = parameter(4.0)
    step(Polyak([theta], lr=2.0), theta, lambda x: 3 * ((x - 1) ** 2).sum(), wanted=0.0)
    assert theta.item() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_units_of_the_loss_do_not_matter(unit):
    ends = []
    for factor in (1.0, unit):
        theta = parameter(4.0, -3.0)
        optimizer = Polyak([theta])
        for _ in range(4):
            step(optimizer, theta, lambda x, u=factor: u * (x**4).sum(), wanted=0.0)
        ends.append(theta.detach())
    torch.testing.assert_close(*ends, rtol=1e-9, atol=0)


def test_a_gradient_that_vanishes_does_not_send_the_weights_away():
    theta = parameter(0.0)
    optimizer = Polyak([theta], growth=1.5)
    step(optimizer, theta, lambda x: x.sum(), wanted=-1.0)
    first = optimizer.param_groups[0]["rate"]
    step(optimizer, theta, lambda x: 1e-6 * x.sum(), wanted=-1.0)
    assert optimizer.param_groups[0]["rate"] == pytest.approx(1.5 * first)


def test_at_the_goal_nothing_moves_but_the_moments():
    theta = parameter(2.0)
    optimizer = Polyak([theta])
    step(optimizer, theta, lambda x: (x**2).sum(), wanted=5.0)
    assert (theta.item(), optimizer.param_groups[0]["rate"]) == (2.0, 0.0)
    assert optimizer.state[theta]["square"].item() == pytest.approx(0.01 * 16)


def test_it_goes_on_from_its_state():
    def run(theta, optimizer, steps):
        for _ in range(steps):
            step(optimizer, theta, lambda x: (x**4).sum(), wanted=0.1)
        return optimizer

    whole, first = parameter(4.0, 1.0), parameter(4.0, 1.0)
    run(whole, Polyak([whole]), 5)
    state = run(first, Polyak([first]), 2).state_dict()
    (after := Polyak([first])).load_state_dict(state)
    run(first, after, 3)
    assert torch.equal(whole, first)


def test_the_bound_follows_the_largest_rate_of_late():
    """Gaps of 1, 1e-3 and 1 at one gradient: the second step tightens the bound by 1.5 alone."""
    theta = parameter(0.0)
    optimizer, rates = Polyak([theta]), []
    for gap in (1.0, 1e-3, 1.0):
        theta.grad = torch.ones_like(theta)
        optimizer.step(gap=gap)
        rates.append(optimizer.param_groups[0]["rate"])
    assert rates == pytest.approx([1.0, 1e-3, 1.0])
