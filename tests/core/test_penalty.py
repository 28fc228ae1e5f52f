"""The schedule of rho."""

import pytest

from ofmu_pl.core.penalty import Penalty
from ofmu_pl.support.errors import UserError


def run(penalty, iterations):
    values = []
    for _ in range(iterations):
        values.append(penalty.rho)
        penalty.update()
    return values


def test_geometric_with_cap():
    assert run(Penalty(0.3, 2.0, cap=1.0), 4) == pytest.approx([0.3, 0.6, 1.0, 1.0])


def test_geometric_without_cap_overflows_float32_as_the_paper_prints_it():
    assert run(Penalty(0.3, 1.5), 225)[-1] > 3.4e38


@pytest.mark.parametrize("bad", [{"rho_0": -1}, {"gamma": 0.5}, {"cap": 0.1}])
def test_out_of_range(bad):
    with pytest.raises(UserError, match="out of range"):
        Penalty(**bad)
