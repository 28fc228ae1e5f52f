"""What the safeguards change of Phi and of an iteration, and that none of them is on in the algorithm as printed."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml

from ofmu_pl.core.algorithm import ascend
from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.objective import Phi, outer_gradient
from ofmu_pl.core.safeguards import AS_PRINTED, Penalty, Safeguards
from ofmu_pl.core.variants import Setting, guarded_iteration, iteration_from_start
from ofmu_pl.support.errors import UserError

ALIGNED = Safeguards(None, None, None, None, aligned_only=True)
G_F = torch.tensor([1.0, 2.0], dtype=torch.float64)
A, B = (torch.tensor(rows, dtype=torch.float64) for rows in ([[2.0, 1.0], [1.0, 1.0]], [[1.0, -0.5], [-0.5, 3.0]]))
OPPOSED, ACROSS, ALIKE = ([-2.0, -1.0], -1), ([-2.0, 1.0], 0), ([2.0, 1.0], 1)


def quadratics(slope):
    """Losses whose gradients at theta = 0 are (1, 2) and ``slope``, and whose Hessians are A and B."""
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    g_r = torch.tensor(slope, dtype=torch.float64)
    return x, [lambda: G_F @ x + x @ A @ x / 2], [lambda: g_r @ x + x @ B @ x / 2]


@pytest.mark.parametrize(("slope", "sign"), [OPPOSED, ACROSS])
def test_where_gradients_are_not_alike_phi_is_the_forget_loss(slope, sign):
    x, *losses = quadratics(slope)
    phi = Phi(Autograd([x]), *losses, 0.7, order=3, aligned_only=True)
    assert (phi.sim.value > 0) - (phi.sim.value < 0) == sign
    assert phi.beta == 0.0
    assert phi.value == phi.f.value
    assert torch.equal(phi.gradient()[0], G_F)
    torch.testing.assert_close(phi.hessian_vector([G_F])[0], A @ G_F, rtol=1e-14, atol=0)
    printed = Phi(Autograd([x]), *losses, 0.7).gradient()[0]
    assert (printed - G_F).norm() > 0.1, "or there is nothing to leave out"


@pytest.mark.parametrize("engine", [Autograd, FiniteDifference])
@pytest.mark.parametrize(("slope", "sign"), [OPPOSED, ACROSS])
def test_where_gradients_are_not_alike_the_outer_gradient_has_no_decorrelation(engine, slope, sign):
    """Grad F = g_r + 2 rho A g_f there."""
    x, *losses = quadratics(slope)
    found = outer_gradient(engine([x]), *losses, rho=0.3, beta=0.7, safeguards=ALIGNED)
    assert found.decorrelation is None
    torch.testing.assert_close(found.penalty[0], 0.6 * A @ G_F, rtol=1e-9, atol=0)
    assert outer_gradient(engine([x]), *losses, 0.3, 0.7, AS_PRINTED).decorrelation is not None


def test_where_gradients_are_alike_nothing_changes():
    x, *losses = quadratics(ALIKE[0])
    ours, printed = (outer_gradient(Autograd([x]), *losses, 0.3, 0.7, which) for which in (ALIGNED, AS_PRINTED))
    assert torch.equal(ours.decorrelation[0], printed.decorrelation[0])
    assert torch.equal(ours.penalty[0], printed.penalty[0])


@pytest.mark.parametrize("iteration", [guarded_iteration, iteration_from_start])
def test_where_gradients_oppose_each_other_an_iteration_ascends_on_the_forget_loss(iteration):
    x, *losses = quadratics(OPPOSED[0])
    iteration(Setting(Autograd([x]), [losses] * 2, 0.01, ALIGNED), 0.3, 0.7)
    torch.testing.assert_close(x.detach(), 0.01 * G_F, rtol=1e-14, atol=0)


def test_an_ascent_has_at_most_the_clips_length():
    x, *losses = quadratics(ALIKE[0])
    (seen,) = ascend(Autograd([x]), [losses], 0.5, 0.0, Safeguards(inner_clip=0.1))
    torch.testing.assert_close(x.detach(), 0.5 * 0.1 * G_F / G_F.norm(), rtol=1e-14, atol=0)
    assert seen.grad_phi_norm == pytest.approx(float(G_F.norm())), "before clipping"


def test_the_literal_form_has_none_of_them_on():
    overlay = Path(__file__).parents[2] / "configs/methods/ofmu_literal.yaml"
    assert not any(asdict(AS_PRINTED).values())
    assert yaml.safe_load(overlay.read_text())["model"]["init_args"]["safeguards"] == asdict(AS_PRINTED)


def test_geometric_without_cap_overflows_float32_as_the_paper_prints_it():
    penalty = Penalty(0.3, 1.5)
    for _ in range(224):
        penalty.update()
    assert penalty.rho > 3.4e38


@pytest.mark.parametrize("bad", [{"rho_0": -1}, {"gamma": 0.5}, {"cap": 0.1}])
def test_out_of_range(bad):
    with pytest.raises(UserError, match=rf" {next(iter(bad.values()))}\b"):
        Penalty(**bad)
