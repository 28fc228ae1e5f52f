"""One second moment for two loops, against the formula and against torch's Adam."""

import re

import pytest
import torch

from ofmu_pl.core.shared_adam import SharedAdam


def parameter(*values):
    return torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))


def test_without_an_ascent_it_is_torchs_adam():
    ours, theirs = parameter(1.0, -2.0), parameter(1.0, -2.0)
    pairs = [(ours, SharedAdam([ours], lr=0.01)), (theirs, torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.99)))]
    for k in range(5):
        for theta, optimizer in pairs:
            theta.grad = torch.tensor([1.0 + k, -0.3 * k], dtype=torch.float64)
            optimizer.step()
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-12, atol=0)


def test_two_loops_by_hand():
    theta, lr, b1, b2 = parameter(0.0), 0.1, 0.5, 0.9
    optimizer = SharedAdam([theta], lr=lr, betas=(b1, b2), eps=1e-30)
    v, means, counts, at = 0.0, {True: 0.0, False: 0.0}, {True: 0, False: 0}, 0.0
    for t, (ascent, g) in enumerate([(True, -2.0), (False, 3.0), (True, -1.0), (True, 4.0), (False, 0.5)], start=1):
        v = b2 * v + (1 - b2) * g**2
        means[ascent], counts[ascent] = b1 * means[ascent] + (1 - b1) * g, counts[ascent] + 1
        at -= lr * means[ascent] / (1 - b1 ** counts[ascent]) / (v / (1 - b2**t)) ** 0.5
        theta.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step(**{"ascent": 1.0} if ascent else {})
        assert theta.item() == pytest.approx(at, rel=1e-12)


def test_an_iteration_goes_root_two_times_as_far_as_adam_on_the_sum():
    """Two gradients that are orthogonal over coordinates, as those of rows that have nothing in common."""
    forget = torch.tensor([1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    retain = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    both, alone = parameter(*[0.0] * 4), parameter(*[0.0] * 4)
    shared = SharedAdam([both], lr=0.01, betas=(0.0, 0.9))
    joint = torch.optim.Adam([alone], lr=0.01, betas=(0.0, 0.9))
    squared = {"shared": 0.0, "joint": 0.0}
    for k in range(40):
        g_f, g_r = forget.roll(k // 2), retain.roll(k)  # of the same sign as often as not, on each coordinate
        before = both.detach().clone(), alone.detach().clone()
        both.grad = g_f
        shared.step(ascent=1.0)
        both.grad = g_r
        shared.step()
        alone.grad = g_f + g_r
        joint.step()
        if k >= 20:
            squared["shared"] += float((both.detach() - before[0]).square().sum())
            squared["joint"] += float((alone.detach() - before[1]).square().sum())
    assert (squared["shared"] / squared["joint"]) ** 0.5 == pytest.approx(2**0.5, rel=0.05)


def test_state_survives_saving():
    def run(optimizer, theta, numbers):
        for k in numbers:
            theta.grad = torch.tensor([float(k) - 1.7], dtype=torch.float64)
            optimizer.step(ascent=1.0)
            optimizer.step()

    whole, half = parameter(0.3), parameter(0.3)
    run(SharedAdam([whole]), whole, range(6))
    run(first := SharedAdam([half]), half, range(3))
    (second := SharedAdam([half])).load_state_dict(first.state_dict())
    run(second, half, range(3, 6))
    assert half.item() == whole.item()


def test_numbers_out_of_range_are_refused():
    for wrong in ({"lr": -1.0}, {"eps": 0.0}, {"betas": (1.0, 0.9)}):
        ((name, value),) = wrong.items()
        with pytest.raises(ValueError, match=re.escape(f"{name}={value}")):
            SharedAdam([parameter(0.0)], **wrong)
