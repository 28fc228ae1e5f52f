"""The step that lowers |grad Phi| by a share, on networks in float64."""

from dataclasses import replace

import pytest
import torch

from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.slope import flatten
from ofmu_pl.core.vectors import norm
from tests.helpers.cases import BETA, FLOORED, SMOOTH, error


def flattened(make, share, engine=Autograd):
    """A network after one step; what the step saw of it; |grad Phi| before and after by nested autograd."""
    case = SMOOTH[make]()
    before = norm(case.grad_phi())
    seen = flatten(engine(case.parameters), case.loss("forget", 2), case.loss("retain", 2), BETA, share, FLOORED)
    return case, seen, before, norm(case.grad_phi())


@pytest.mark.parametrize("name", SMOOTH)
def test_the_slope_falls_by_the_share_to_first_order(name):
    """With half of the share a quarter of the error is left."""
    errors = []
    for share in (4e-4, 2e-4, 1e-4):
        _, seen, before, after = flattened(name, share)
        assert seen.grad_phi_norm == pytest.approx(before, rel=1e-10)
        errors.append(after / before - (1 - share))
    assert abs(errors[-1]) < 0.05 * 1e-4
    assert abs(errors[0]) > 1e-11, "nothing here is a quadratic"
    assert [errors[0] / errors[1], errors[1] / errors[2]] == pytest.approx([4.0, 4.0], rel=0.1)


def test_it_goes_along_the_gradient_of_the_squared_slope():
    """Against nested autograd alone, with length share |grad Phi|^2 / |h|."""
    case = SMOOTH["mlp"]()
    start = [p.detach().clone() for p in case.parameters]
    h = torch.autograd.grad(sum((g**2).sum() for g in case.grad_phi(create_graph=True)) / 2, case.parameters)
    slope = norm(case.grad_phi())
    moved, *_ = flattened("mlp", 0.3)
    step = [p.detach() - s for p, s in zip(moved.parameters, start, strict=True)]
    assert error(step, [-0.3 * slope**2 / norm(h) ** 2 * x for x in h]) < 1e-9


def test_no_cap_of_the_penalty_shortens_it():
    case, other = SMOOTH["mlp"](), SMOOTH["mlp"]()
    tight = replace(FLOORED, rho_max=1e-9, penalty_clip=1e-9, inner_clip=1e-9)
    for one, safeguards in ((case, FLOORED), (other, tight)):
        flatten(Autograd(one.parameters), one.loss("forget"), one.loss("retain"), BETA, 0.3, safeguards)
    assert all(torch.equal(a, b) for a, b in zip(case.parameters, other.parameters, strict=True))


def test_by_differences_it_is_the_same_step():
    exact, *_ = flattened("mlp", 0.1)
    ours, *_ = flattened("mlp", 0.1, FiniteDifference)
    start = SMOOTH["mlp"]().parameters
    a, b = ([(p - s).detach() for p, s in zip(case.parameters, start, strict=True)] for case in (ours, exact))
    assert error(a, b) < 0.02


def test_where_there_is_no_slope_nothing_moves():
    theta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    loss = [lambda: (theta**2).sum() / 2]
    seen = flatten(Autograd([theta]), loss, loss, 0.0, 0.5, FLOORED)
    assert seen.grad_phi_norm == 0.0
    assert not theta.any()
