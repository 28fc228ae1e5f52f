"""The index by hand, term by term."""

from __future__ import annotations

import numpy as np
import pytest

from ofmu_pl.analysis import easiest_and_hardest, unlearning_difficulty
from ofmu_pl.support.errors import UserError

NORMS, SIMILARITIES, LOSSES = np.array([3.0, 1.0, 2.0]), np.array([1.0, 0.0, -0.5]), np.array([0.5, 2.0, 7.0])


def test_the_sum_of_three_terms():
    found = unlearning_difficulty(NORMS, SIMILARITIES, LOSSES, threshold=4.0)
    assert found.gradient_norm.tolist() == [3.0, 1.0, 2.0]
    assert found.conflict.tolist() == [0.0, 1.0, 1.5]
    assert found.margin.tolist() == [3.5, 2.0, 0.0], "a sample past the threshold has no way to go"
    assert found.value.tolist() == [6.5, 4.0, 3.5]
    assert found.value.dtype == np.float64


@pytest.mark.parametrize(
    ("weights", "value"), [((1, 0, 0), [3, 1, 2]), ((0, 2, 0), [0, 2, 3]), ((0, 0, 3), [10.5, 6, 0])]
)
def test_weights(weights, value):
    alpha, lambda_, gamma = weights
    assert unlearning_difficulty(NORMS, SIMILARITIES, LOSSES, 4.0, alpha, lambda_, gamma).value.tolist() == value


def test_broken_samples_are_counted():
    with pytest.raises(UserError, match="1 of 3 samples"):
        unlearning_difficulty(NORMS, SIMILARITIES, np.array([0.5, np.nan, 7.0]), 4.0)


def test_thirds():
    easy, hard = easiest_and_hardest(np.array([5.0, 1.0, 4.0, 2.0, 3.0, 0.0, 9.0]))
    assert (easy.tolist(), hard.tolist()) == ([1, 5], [0, 6])
    easy, hard = easiest_and_hardest(np.array([1.0, 1.0]))
    assert (easy.tolist(), hard.tolist()) == ([0], [1])
