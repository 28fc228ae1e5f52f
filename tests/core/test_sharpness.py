"""SAM's shift on quadratics and small networks, in float64, against arithmetic by hand and torch.autograd."""

import pytest
import torch

from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.sharpness import shifted
from ofmu_pl.core.vectors import norm
from tests.helpers.cases import SMOOTH, error


def quadratic():
    """``x^T A x / 2 - b^T x``, whose gradient is A x - b and whose shifted gradient is A x - b + rho A u."""
    g = torch.Generator().manual_seed(1)
    root = torch.randn(5, 5, generator=g, dtype=torch.float64)
    a, b = root @ root.T, torch.randn(5, generator=g, dtype=torch.float64)
    x = torch.randn(5, generator=g, dtype=torch.float64).requires_grad_()
    return a, b, x, [lambda: x @ a @ x / 2 - b @ x]


@pytest.mark.parametrize("engine", [Autograd, FiniteDifference])
@pytest.mark.parametrize("rho", [0.7, -0.7, 0.0])
def test_the_gradient_of_a_quadratic_where_it_is_worst_nearby(engine, rho):
    a, b, x, loss = quadratic()
    here = x.detach().clone()
    engine = engine([x])
    g = engine.expand(loss, order=1).gradient
    with shifted([x], g, rho):
        assert float((x.detach() - here).norm()) == pytest.approx(abs(rho), rel=1e-12)
        (found,) = engine.expand(loss, order=1).gradient
    slope = a @ here - b
    torch.testing.assert_close(found, slope + rho * a @ slope / slope.norm(), rtol=1e-12, atol=1e-12)
    assert torch.equal(x, here), "bit for bit"
    assert engine.gradient_evaluations == 2


@pytest.mark.parametrize("name", SMOOTH)
def test_to_first_order_a_shift_adds_a_hessian_vector_product(name):
    """``g(theta + rho u) = g + rho H u + O(rho^2)``, H u by torch.autograd alone."""
    case = SMOOTH[name]()
    engine, rho = Autograd(case.parameters), 1e-5
    g = engine.expand(case.loss("forget", parts=2), order=1).gradient
    with shifted(case.parameters, g, rho):
        ahead = engine.expand(case.loss("forget", parts=2), order=1).gradient
    graph = torch.autograd.grad(case.loss("forget")[0](), case.parameters, create_graph=True)
    size = norm(g)
    product = torch.autograd.grad(graph, case.parameters, [x / size for x in g])
    assert error([(a - b) / rho for a, b in zip(ahead, g, strict=True)], product) < 1e-3


def test_weights_and_what_is_kept_return_also_after_an_error():
    theta, statistic = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor(3)

    def fail():
        with shifted([theta], [torch.ones(2)], 0.5, keep=[statistic]):
            statistic.add_(1)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert (theta.tolist(), statistic.item()) == ([1.0, 2.0], 3)


def test_a_vanished_gradient_shifts_nothing():
    with shifted([theta := torch.tensor([1.0])], [torch.zeros(1)], 0.5):
        assert theta.item() == 1.0
