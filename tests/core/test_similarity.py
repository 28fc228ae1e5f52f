"""The cosine's derivatives against autograd, and its floor."""

import pytest
import torch

from ofmu_pl.core.similarity import Cosine
from ofmu_pl.core.vectors import combine

g = torch.Generator().manual_seed(0)
G_F, G_R, D_F, D_R = (torch.randn(7, dtype=torch.float64, generator=g) for _ in range(4))


def cosine(f, r, floor):
    return (f @ r) / ((f @ f + floor**2).sqrt() * (r @ r + floor**2).sqrt())


@pytest.mark.parametrize("floor", [0.0, 0.5])
def test_derivatives_equal_autograd(floor):
    sim = Cosine([G_F], [G_R], floor)
    function = lambda f, r: cosine(f, r, floor)  # noqa: E731
    assert sim.value == pytest.approx(function(G_F, G_R).item(), rel=1e-14)
    u = torch.func.grad(function, argnums=(0, 1))
    ours_u = [combine(x)[0] for x in sim.gradient()]
    _, w = torch.func.jvp(u, (G_F, G_R), (D_F, D_R))
    ours_w = [combine(x)[0] for x in sim.directional([D_F], [D_R])]
    torch.testing.assert_close(ours_u, list(u(G_F, G_R)), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(ours_w, list(w), rtol=1e-12, atol=1e-14)


def test_a_vanishing_gradient_is_finite_with_a_floor_and_an_error_without():
    zero = torch.zeros_like(G_F)
    sim = Cosine([zero], [G_R], 0.1)
    assert sim.value == 0.0
    for part in (*sim.gradient(), *sim.directional([D_F], [D_R])):
        assert torch.isfinite(combine(part)[0]).all()
    assert combine(sim.gradient()[0])[0].norm() <= 1 / 0.1
    with pytest.raises(ZeroDivisionError):
        Cosine([zero], [G_R])
