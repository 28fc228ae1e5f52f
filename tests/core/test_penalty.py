"""The schedule of rho."""

import pytest

from ofmu_pl.core.penalty import Penalty
from ofmu_pl.support.errors import UserError


def test_geometric_without_cap_overflows_float32_as_the_paper_prints_it():
    penalty = Penalty(0.3, 1.5)
    for _ in range(224):
        penalty.update()
    assert penalty.rho > 3.4e38


@pytest.mark.parametrize("bad", [{"rho_0": -1}, {"gamma": 0.5}, {"cap": 0.1}])
def test_out_of_range(bad):
    with pytest.raises(UserError, match="out of range"):
        Penalty(**bad)
