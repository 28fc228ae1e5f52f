"""One second moment for two loops, against the formula and against torch's Adam."""

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
        if ascent:
            with optimizer.ascending():
                optimizer.step()
        else:
            optimizer.step()
        assert theta.item() == pytest.approx(at, rel=1e-12)


def test_a_vanishing_ascent_stands_still_beside_the_descent():
    theta = parameter(0.0)
    optimizer = SharedAdam([theta], lr=1.0, betas=(0.0, 0.99))
    theta.grad = torch.tensor([1.0], dtype=torch.float64)
    optimizer.step()
    before = theta.item()
    theta.grad = torch.tensor([-1e-6], dtype=torch.float64)
    with optimizer.ascending():
        optimizer.step()
    assert abs(theta.item() - before) < 2e-6


def test_state_survives_saving():
    def run(optimizer, theta, numbers):
        for k in numbers:
            theta.grad = torch.tensor([float(k) - 1.7], dtype=torch.float64)
            with optimizer.ascending():
                optimizer.step()
            optimizer.step()

    whole, half = parameter(0.3), parameter(0.3)
    one, two = SharedAdam([whole]), SharedAdam([half])
    run(one, whole, range(6))
    run(two, half, range(3))
    rest = torch.nn.Parameter(half.detach().clone())
    three = SharedAdam([rest])
    three.load_state_dict(two.state_dict())
    run(three, rest, range(3, 6))
    assert rest.item() == whole.item()


def test_numbers_out_of_range_are_refused():
    for wrong in ({"lr": -1.0}, {"eps": 0.0}, {"betas": (1.0, 0.9)}):
        with pytest.raises(ValueError, match="must be"):
            SharedAdam([parameter(0.0)], **wrong)
