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


def test_harder_is_a_larger_gradient_more_conflict_and_a_longer_way():
    base = unlearning_difficulty(NORMS, SIMILARITIES, LOSSES, 4.0).value
    assert (unlearning_difficulty(NORMS + 1, SIMILARITIES, LOSSES, 4.0).value > base).all()
    assert (unlearning_difficulty(NORMS, SIMILARITIES - 0.1, LOSSES, 4.0).value > base).all()
    assert (unlearning_difficulty(NORMS, SIMILARITIES, LOSSES, 9.0).value > base).all()


def test_standardised_terms_have_no_units():
    found = unlearning_difficulty(NORMS, SIMILARITIES, LOSSES, 4.0, standardise=True)
    assert found.value.mean() == pytest.approx(0, abs=1e-15)
    other = unlearning_difficulty(1000 * NORMS, SIMILARITIES, 0.01 * LOSSES, 0.04, standardise=True)
    np.testing.assert_allclose(other.value, found.value, rtol=1e-12)
    scores = (NORMS - 2) / NORMS.std()
    np.testing.assert_allclose(
        unlearning_difficulty(NORMS, SIMILARITIES, LOSSES, 4.0, 1, 0, 0, standardise=True).value, scores
    )
    assert found.gradient_norm.tolist() == NORMS.tolist(), "the terms are given as they are"
    same = np.ones(3)
    assert unlearning_difficulty(same, same, same, 4.0, standardise=True).value.tolist() == [0, 0, 0], (
        "nothing varies: nothing counts"
    )


def test_broken_samples_are_counted():
    with pytest.raises(UserError, match="1 of 3 samples"):
        unlearning_difficulty(NORMS, SIMILARITIES, np.array([0.5, np.nan, 7.0]), 4.0)


def test_thirds():
    easy, hard = easiest_and_hardest(np.array([5.0, 1.0, 4.0, 2.0, 3.0, 0.0, 9.0]))
    assert (easy.tolist(), hard.tolist()) == ([1, 5], [0, 6])
    easy, hard = easiest_and_hardest(np.array([1.0, 1.0]))
    assert (easy.tolist(), hard.tolist()) == ([0], [1])
