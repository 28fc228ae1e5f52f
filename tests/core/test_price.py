"""The price of a constraint."""

import pytest

from ofmu_pl.core.price import Price
from ofmu_pl.support.errors import UserError


def test_a_price_does_not_fall_below_zero():
    price = Price(bound=10.0, first=1.0, step=5.0)
    price.move(0.0)
    assert price.value == 0.0
    with pytest.raises(UserError, match="step"):
        Price(step=-1.0)
