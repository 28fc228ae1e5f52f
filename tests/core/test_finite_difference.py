"""The first-order engine's handling of the parameters."""

import pytest
import torch

from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.vectors import norm
from scripts.engine_audit import compare, parts
from tests.helpers.cases import SMOOTH, error, mlp


def test_parameters_return_bit_for_bit_when_a_term_raises():
    case = mlp()
    case.network.float()
    engine = FiniteDifference(case.parameters)
    before = [p.detach().clone() for p in case.parameters]

    def broken():
        raise RuntimeError("broken")

    def displaced_and_broken():
        with engine.displaced([(1.0, before)]):
            assert not torch.equal(case.parameters[0], before[0])
            engine.expand([broken])

    with pytest.raises(RuntimeError, match="broken"):
        displaced_and_broken()
    assert all(torch.equal(a, b) for a, b in zip(before, case.parameters, strict=True))


@pytest.mark.parametrize("rho", [0.7, -0.7, 0.0])
def test_the_gradient_of_a_displaced_quadratic(rho):
    """Of ``x^T A x / 2 - b^T x`` the gradient is A x - b, and rho u further on A x - b + rho A u."""
    g = torch.Generator().manual_seed(1)
    root = torch.randn(5, 5, generator=g, dtype=torch.float64)
    a, b = root @ root.T, torch.randn(5, generator=g, dtype=torch.float64)
    x = torch.randn(5, generator=g, dtype=torch.float64).requires_grad_()
    engine, here, loss = FiniteDifference([x]), x.detach().clone(), [lambda: x @ a @ x / 2 - b @ x]
    slope = a @ here - b
    with engine.displaced([(rho / slope.norm().item(), [slope])]):
        assert float((x.detach() - here).norm()) == pytest.approx(abs(rho), rel=1e-12)
        (found,) = engine.expand(loss).gradient
    torch.testing.assert_close(found, slope + rho * a @ slope / slope.norm(), rtol=1e-12, atol=1e-12)
    assert torch.equal(x, here), "bit for bit"
    with engine.displaced([]):
        assert torch.equal(x, here)


@pytest.mark.parametrize("name", SMOOTH)
def test_to_first_order_a_displacement_adds_a_hessian_vector_product(name):
    """``g(theta + d) = g + H d + O(|d|^2)``, H d by torch.autograd alone."""
    case = SMOOTH[name]()
    engine = FiniteDifference(case.parameters)
    here = engine.expand(case.loss("forget", parts=2)).gradient
    shift = 1e-5 / norm(here)
    with engine.displaced([(shift, here)]):
        there = engine.expand(case.loss("forget", parts=2)).gradient
    graph = torch.autograd.grad(case.loss("forget")[0](), case.parameters, create_graph=True)
    product = torch.autograd.grad(graph, case.parameters, here)
    assert error([(a - b) / shift for a, b in zip(there, here, strict=True)], product) < 1e-3


def test_bfloat16_parameters_are_refused():
    with pytest.raises(TypeError, match="bfloat16"):
        FiniteDifference([torch.zeros(2, dtype=torch.bfloat16, requires_grad=True)])


def test_gradients_of_the_module_are_left_alone():
    case = mlp()
    case.parameters[0].grad = torch.ones_like(case.parameters[0])
    FiniteDifference(case.parameters).expand(case.loss("forget"))
    assert torch.equal(case.parameters[0].grad, torch.ones_like(case.parameters[0]))
    assert case.parameters[1].grad is None


def test_audit_sees_a_right_and_a_wrong_engine():
    case = mlp()
    losses = case.loss("forget"), case.loss("retain")
    exact = Autograd(case.parameters)
    truth = parts(exact, *losses, 0.7, 1e-3)
    right = compare(parts(FiniteDifference(case.parameters, "central"), *losses, 0.7, 1e-3), truth)
    assert right["penalty_cosine"] > 1 - 1e-6
    assert right["decorrelation_error"] < 1e-5
    wrong = compare(parts(FiniteDifference(case.parameters, "forward", step=1.0), *losses, 0.7, 1e-3), truth)
    assert wrong["decorrelation_error"] > 0.1
