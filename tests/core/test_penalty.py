"""Schedules of rho."""

import pytest

from ofmu_pl.core.penalty import Penalty
from ofmu_pl.support.errors import UserError


def run(penalty, norms, epoch=3):
    values = []
    for k, x in enumerate(norms):
        values.append(penalty.rho)
        penalty.update(x, epoch_ends=(k + 1) % epoch == 0)
    return values


def test_geometric_with_cap():
    assert run(Penalty(0.3, 2.0, cap=1.0), [1] * 4) == pytest.approx([0.3, 0.6, 1.0, 1.0])


def test_geometric_without_cap_overflows_float32_as_the_paper_prints_it():
    assert run(Penalty(0.3, 1.5), [1] * 225)[-1] > 3.4e38


def test_unit_epoch():
    assert run(Penalty(0.3, 2.0, unit="epoch"), [1] * 7) == pytest.approx([0.3] * 3 + [0.6] * 3 + [1.2])


def test_adaptive_grows_only_while_the_gradient_stalls():
    assert run(Penalty(1.0, 2.0, rule="adaptive"), [8, 4, 2, 2, 2]) == pytest.approx([1, 2, 2, 2, 4])


def test_state_goes_on_where_it_was():
    a, b = (Penalty(1.0, 2.0, rule="adaptive") for _ in range(2))
    run(a, [8, 4, 2])
    b.load_state_dict(a.state_dict())
    assert run(a, [2, 2, 1, 1]) == run(b, [2, 2, 1, 1])


@pytest.mark.parametrize("bad", [{"rho_0": -1}, {"gamma": 0.5}, {"cap": 0.1}])
def test_out_of_range(bad):
    with pytest.raises(UserError, match="out of range"):
        Penalty(**bad)
