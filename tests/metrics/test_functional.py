"""The equations, against other ways to compute them and against edge cases."""

import math

import numpy as np
import pytest
from scipy import stats

from ofmu_pl.metrics import functional as F

RNG = np.random.default_rng(0)
CORRECT, WRONG = RNG.exponential(2.0, 50), RNG.exponential(3.0, (50, 5))


def test_truth_ratio_is_a_mean_over_wrong_answers_over_the_right_one():
    for mean, wrong in (
        ("geometric", np.prod(np.exp(-WRONG), axis=1) ** (1 / 5)),
        ("arithmetic", np.exp(-WRONG).mean(1)),
    ):
        np.testing.assert_allclose(
            np.exp(F.log_truth_ratio(CORRECT, WRONG, mean)), wrong / np.exp(-CORRECT), rtol=1e-12
        )


def test_scores_of_the_ratio_match_their_definitions_in_probability_space():
    log_ratio = F.log_truth_ratio(CORRECT, WRONG)
    ratio = np.exp(log_ratio)
    np.testing.assert_allclose(F.closer_to_one(log_ratio), np.minimum(ratio, 1 / ratio), rtol=1e-12)
    np.testing.assert_allclose(F.true_better(log_ratio), np.maximum(0, 1 - ratio), rtol=1e-12)
    np.testing.assert_allclose(F.truth_probability(log_ratio), 1 / (1 + ratio), rtol=1e-12)


@pytest.mark.parametrize("shift", [0, 15, 25, 60])
def test_epsilon_acts_as_in_probability_space(shift):
    e, correct, wrong = 1e-10, CORRECT + shift, WRONG + shift
    p, p_wrong = np.exp(-correct), np.exp(-wrong)
    ratio = np.exp(-wrong.mean(1)) / (p + e)
    log_ratio = F.log_truth_ratio(correct, wrong, epsilon=e)
    np.testing.assert_allclose(np.exp(log_ratio), ratio, rtol=1e-9)
    np.testing.assert_allclose(F.closer_to_one(log_ratio, e), np.minimum(ratio, 1 / (ratio + e)), rtol=1e-9)
    normalised = p / (p + p_wrong.sum(1) + e)
    np.testing.assert_allclose(F.normalised_probability(correct, wrong, e), normalised, rtol=1e-9)
    other = F.log_truth_ratio(correct[::-1] + 1, wrong + 0.25, epsilon=e)
    plain = stats.ks_2samp(ratio, np.exp(other))
    assert F.forget_quality(log_ratio, other) == pytest.approx((plain.pvalue, plain.statistic), rel=1e-9)


def test_extraction_strength_at_its_ends():
    suffix, tokens = np.array([0.0, 4.0, 0.0]), np.array([4.0, 4.0, 0.0])
    assert F.extraction_strength(suffix, tokens).tolist() == [0.0, 1.0, 0.0]
    assert F.extraction_strength(suffix, tokens, floor=1).tolist() == [0.25, 1.0, 0.0]


def test_a_collapsed_model_keeps_its_ratios():
    # exp(-900) is 0 in float64: in probability space every ratio would be 0/0 or, with an epsilon, 0.
    log_ratio = F.log_truth_ratio(CORRECT + 900, WRONG + 900)
    np.testing.assert_allclose(log_ratio, F.log_truth_ratio(CORRECT, WRONG), atol=1e-10)
    shifted = F.normalised_probability(CORRECT + 900, WRONG + 900)
    np.testing.assert_allclose(shifted, F.normalised_probability(CORRECT, WRONG), rtol=1e-10)


def test_extreme_ratios_are_bounded_without_overflow():
    extreme = np.array([-1e4, 0.0, 1e4])
    with np.errstate(all="raise", under="ignore"):
        assert F.closer_to_one(extreme).tolist() == [0.0, 1.0, 0.0]
        assert F.true_better(extreme).tolist() == [1.0, 0.0, 0.0]
    assert F.normalised_probability(np.array([math.inf]), np.array([[1.0, 2.0]])).tolist() == [0.0]


@pytest.mark.parametrize("function", [F.probability, F.closer_to_one, F.true_better])
def test_nan_stays_nan_and_stays_in_its_item(function):
    assert np.isnan(function(np.array([math.nan, 0.5]))).tolist() == [True, False]


def test_nan_makes_forget_quality_and_utility_nan():
    assert all(map(math.isnan, F.forget_quality(np.array([0.0, math.nan]), np.zeros(2))))
    assert all(map(math.isnan, F.forget_quality(np.zeros(2), np.array([0.0, math.nan]))))
    assert math.isnan(F.harmonic_mean([0.5, math.nan]))


def test_forget_quality_distance_is_the_largest_gap_of_the_distribution_functions():
    a, b = RNG.normal(size=40), RNG.normal(0.7, size=60)
    grid = np.concatenate([a, b])
    gaps = (a <= grid[:, None]).mean(1) - (b <= grid[:, None]).mean(1)
    assert F.forget_quality(a, b)[1] == pytest.approx(np.abs(gaps).max(), abs=1e-12)


def test_forget_quality_at_its_ends():
    x = RNG.normal(size=40)
    assert F.forget_quality(x, x) == (1.0, 0.0)
    p, distance = F.forget_quality(x, x + 100)  # disjoint: the exact p is two orders in all C(80, 40)
    assert p == pytest.approx(2 / math.comb(80, 40), rel=1e-9)
    assert distance == 1.0


def test_harmonic_mean():
    parts = RNG.uniform(0.1, 1, 9)
    assert F.harmonic_mean(parts) == pytest.approx(9 / (1 / parts).sum(), rel=1e-12)
    assert F.harmonic_mean([*parts[:8], 0.0]) == 0.0
