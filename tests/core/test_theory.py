"""What the paper proves, seen on a small convex problem (Lemma 1, the inner and the outer rate)."""

from itertools import pairwise

import pytest
import torch

from ofmu_pl.core.algorithm import ascend
from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.objective import Phi, outer_gradient
from ofmu_pl.core.vectors import norm

A = torch.diag(torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64))
B = torch.tensor([[1.0, 0.2, 0.0], [0.2, 0.8, 0.1], [0.0, 0.1, 0.6]], dtype=torch.float64)
SHIFT_F = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)
SHIFT_R = torch.tensor([-0.5, 0.5, 1.0], dtype=torch.float64)


def problem(sign=1.0):
    """L_f = sign/2 |x-a|_A^2 (concave for -1, so that the ascent has a maximum), L_r = 1/2 |x-b|_B^2."""
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    forget = [lambda: sign * 0.5 * (x - SHIFT_F) @ A @ (x - SHIFT_F)]
    retain = [lambda: 0.5 * (x - SHIFT_R) @ B @ (x - SHIFT_R)]
    return x, forget, retain


def test_lemma_1_the_penalty_drives_the_minimiser_to_stationarity():
    """|grad Phi| at the minimiser of F falls like 1/rho."""
    norms = []
    for rho in (1.0, 10.0, 100.0, 1000.0):
        x, forget, retain = problem()

        def grad_f(z, rho=rho, x=x, forget=forget, retain=retain):
            with torch.no_grad():
                x.copy_(z)
            return outer_gradient(Autograd([x]), forget, retain, rho, beta=0.0).total_()[0]

        zero, eye = torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
        constant = grad_f(zero)  # grad F is affine here: four values of it give its zero
        matrix = torch.stack([grad_f(e) - constant for e in eye], dim=1)
        assert grad_f(torch.linalg.solve(matrix, -constant)).norm() < 1e-9 * rho
        norms.append(norm(Phi(Autograd([x]), forget, retain, 0.0).gradient()))
    ratios = [a / b for a, b in pairwise(norms)]
    assert norms[0] > 0.05
    assert ratios[1:] == pytest.approx([10.0, 10.0], rel=0.15)


def test_inner_ascent_meets_the_convex_rate():
    """Phi* - Phi(theta^T) <= |theta* - theta^0|^2 / (2 T eta_in) for eta_in <= 1/L, on a concave Phi (L = 2)."""
    eta = 0.25
    gaps = {}
    for steps in (1, 5, 20, 80):
        x, forget, retain = problem(sign=-1.0)
        ascend(Autograd([x]), [(forget, retain)] * steps, eta, beta=0.0)
        gaps[steps] = 0.0 - forget[0]().item()  # Phi* = 0 at the shift
        assert 0 <= gaps[steps] <= float(SHIFT_F @ SHIFT_F) / (2 * steps * eta)
    assert gaps[80] < 1e-6 < gaps[5]


def test_outer_descent_meets_the_convex_rate():
    """The mean of |grad F|^2 over K steps is at most 2 (F_0 - F*) / (K eta) for eta <= 1/L_F, and so falls like 1/K."""
    rho, eta, count = 0.3, 0.2, 200
    x, forget, retain = problem()
    values, squares = [], []
    for _ in range(count):
        outer = outer_gradient(Autograd([x]), forget, retain, rho, beta=0.0)
        values.append(outer.loss_r + rho * outer.grad_phi_norm**2)
        gradient = outer.total_()
        squares.append(norm(gradient) ** 2)
        with torch.no_grad():
            x.sub_(gradient[0], alpha=eta)
    best = min(values)
    assert all(b <= a + 1e-12 for a, b in pairwise(values)), "descent"
    for k in (1, 10, 50, count):
        assert sum(squares[:k]) / k <= 2 * (values[0] - best) / (k * eta)
