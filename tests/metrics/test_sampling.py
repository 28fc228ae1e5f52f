"""Samples that hold an answer: estimates against all choices, and an exact figure against powers."""

from itertools import combinations

import numpy as np
import pytest

from ofmu_pl.metrics import at_least_once, leak_at_k
from ofmu_pl.support.errors import UserError


@pytest.mark.parametrize("n", [1, 4, 7])
def test_leak_at_k_is_the_share_of_choices_with_a_hit(n):
    for k in range(1, n + 1):
        for c in range(n + 1):
            hit = [any(i < c for i in chosen) for chosen in combinations(range(n), k)]
            assert leak_at_k([c], n, k)[0] == pytest.approx(np.mean(hit), abs=1e-15)


def test_more_samples_than_there_are_are_refused():
    with pytest.raises(UserError, match="k=5"):
        leak_at_k([1], samples=4, k=5)


def test_at_least_once_by_hand():
    p = np.array([0.0, 1e-300, 1e-9, 0.25, 1.0])
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    np.testing.assert_allclose(at_least_once(log_p, 3), [0.0, 3e-300, 3e-9, 1 - 0.75**3, 1.0], rtol=1e-8)
