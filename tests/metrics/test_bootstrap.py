"""Bootstrap intervals against the normal theory of means."""

import math

import numpy as np
import pytest
from scipy import stats

from ofmu_pl.metrics import Metric, interval
from ofmu_pl.metrics.bootstrap import difference, wilson
from ofmu_pl.metrics.verdicts import with_verdicts
from scripts.nulls import KINDS, held


def test_interval_of_a_mean_is_that_of_the_normal_theory():
    x = np.random.default_rng(0).normal(3, 2, 2000)
    low, high = interval([x])
    half = 1.96 * x.std() / math.sqrt(len(x))
    assert (low, high) == pytest.approx((x.mean() - half, x.mean() + half), abs=0.1 * half)


def test_groups_are_drawn_apart_and_their_means_add_up():
    x = np.random.default_rng(0).normal(size=200)
    (low, high), alone = interval([x, -x]), interval([x])
    assert high - low == pytest.approx(math.sqrt(2) * (alone[1] - alone[0]), rel=0.1)
    assert interval([x, -x]) == (low, high), "seeded"


def test_few_items_have_the_t_interval():
    x = np.random.default_rng(0).normal(size=5)
    assert interval([x]) == pytest.approx(stats.ttest_1samp(x, 0).confidence_interval(0.95))


def test_one_item_beside_others_varies_as_they_do_and_none_has_no_interval():
    x = np.random.default_rng(0).normal(size=12)
    low, high = interval([x, np.ones(1)])
    assert (low + high) / 2 == pytest.approx(x.mean() + 1)
    assert high - low > 2 * x.std(ddof=1)
    assert np.isnan([interval([np.array([])]), interval([x, np.array([])])]).all()


def test_a_share_has_wilsons_interval():
    hits = np.arange(40.0) < 2
    assert interval([hits]) == pytest.approx(stats.binomtest(2, 40).proportion_ci(method="wilson"))
    assert interval([np.zeros(40)])[1] > 0.05
    metric = Metric("UA", True, "%")
    assert metric.of_items(100.0 * hits).interval == pytest.approx([100 * x for x in interval([hits])])


@pytest.mark.parametrize(
    "x", [np.r_[np.zeros(11), 0.4], np.r_[0.001 + 1e-5 * np.arange(19), 0.9], np.r_[np.ones(39), 0.5]]
)
def test_an_interval_that_hangs_on_one_item_is_a_shares(x):
    """Resamples without it hardly vary, so their t is far off or none."""
    low, high = interval([x], bounded=True)
    share = x.mean()
    assert 0 <= low < share < high <= 1
    assert high - low < 0.3
    assert (low, high) == pytest.approx(wilson(share, share * (1 - share) / (x.var(ddof=1) / len(x))))
    free = interval([x])
    assert free == pytest.approx(stats.t.interval(0.95, len(x) - 1, share, stats.sem(x)))


@pytest.mark.parametrize(("few", "many"), [(3, 40), (10, 100)])
def test_a_few_equal_items_are_not_known_exactly(few, many):
    """Nine of ten shares of .95 are 1 throughout; Welch's test alone calls 45 % of such pairs different."""
    rng = np.random.default_rng(0)
    drawn = [(rng.random(few) < 0.95, rng.random(many) < 0.95) for _ in range(400)]
    found = [difference([1.0 * x, -1.0 * y])[0] for x, y in drawn]
    assert np.mean(np.array(found) < 0.05) <= 0.05


def test_shares_that_are_all_zero_are_tested_as_shares():
    assert difference([np.full(8, -0.25)])[0] == pytest.approx(2 * 0.75**8), "0 of 8, where a quarter is the goal"
    assert difference([np.full(40, -0.25)])[0] < 1e-4


@pytest.mark.parametrize(("hits", "n", "goal"), [(2, 20, 0.25), (10, 20, 0.25), (1, 8, 0.5), (3, 40, 0.05)])
def test_a_share_is_tested_as_a_share(hits, n, goal):
    """By t 2 and 10 hits of 20 differ from a quarter, .09 and .01 of all draws."""
    tails = [stats.binomtest(hits, n, goal, side).pvalue for side in ("less", "greater")]
    for width in (1.0, 100.0):
        values = width * (1.0 * (np.arange(n) < hits) - goal)
        assert difference([values])[0] == pytest.approx(max(2.0 ** (1 - n), min(1, 2 * min(tails))))
    paired = np.r_[np.zeros(6), np.ones(3)]
    assert difference([paired])[0] == pytest.approx(stats.ttest_1samp(paired, 0).pvalue), "a difference of 0 is no miss"


@pytest.mark.parametrize("n", [6, 10, 20, 40])
@pytest.mark.parametrize("kind", ["lognormal", "exponential", "beta", "normal"])
def test_a_mean_is_told_from_a_number_as_often_as_the_level_says_or_not_at_all(kind, n):
    """By t alone .23 to .13 of lognormal draws (sigma 1.2) differ from their own mean."""
    rng = np.random.default_rng(0)
    draw, mean = {
        "lognormal": (lambda size: rng.lognormal(0, 1.2, size), math.exp(0.72)),
        "exponential": (rng.exponential, 1.0),
        "beta": (lambda size: rng.beta(0.3, 2, size), 0.3 / 2.3),
        "normal": (lambda size: rng.normal(1, 1, size), 1.0),
    }[kind]
    values = [Metric("x", True, "nats").of_items(draw(size=n), mean, intervals=False) for _ in range(800)]
    said = [with_verdicts({"x": x}, {})["x"].verdict for x in values]
    assert sum(x.endswith("the goal") for x in said) / 800 < 0.075
    assert ("no difference" in said) == (n >= 10), "few values say nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_of_forty_items_hold_the_truth_as_often_as_they_say(kind):
    assert 0.93 <= held(kind, 500, seed=1) / 500 <= 0.97


def test_one_item_and_nan():
    assert interval([np.array([0.3])]) == (0.3, 0.3)
    for broken in (math.nan, math.inf):
        assert all(map(math.isnan, interval([np.array([0.3, broken])])))
        assert math.isnan(difference([np.array([0.3, broken])])[0])


def test_a_difference_is_scipys_t_test_and_no_surer_than_signs_and_ranks_allow():
    x, y = np.random.default_rng(0).normal(0.3, 1, 20), np.random.default_rng(1).normal(size=15)
    assert difference([x])[0] == pytest.approx(stats.ttest_1samp(x, 0).pvalue)
    welch, pooled = (stats.ttest_ind(x, y, equal_var=equal).pvalue for equal in (False, True))
    assert difference([x, -y])[0] == pytest.approx(max(welch, pooled))
    assert difference([np.full(6, 0.5)]) == (2**-5, 2**-5)
    assert difference([np.ones(1)])[0] == difference([np.ones(1), -np.zeros(1)])[0] == 1.0
    assert difference([np.full(1, 9.0), y])[0] == pytest.approx(2 / 16), "one row among fifteen others"


@pytest.mark.parametrize(("centre", "least"), [(-4.2, 0.8), (3.3, 0.83), (0.0, 0.93)])
def test_intervals_of_five_bounded_items_reach_far_enough_on_the_far_side(centre, least):
    """Logit-normal values, of which the plain t interval holds the mean of .03 in .76 of all cases."""
    rng = np.random.default_rng(0)
    values = 1 / (1 + np.exp(-(centre + 1.2 * rng.standard_normal((400, 5)))))
    mean = (1 / (1 + np.exp(-(centre + 1.2 * rng.standard_normal(200_000))))).mean()
    ends = np.array([interval([x], bounded=True) for x in values])
    assert ((ends[:, 0] <= mean) & (mean <= ends[:, 1])).mean() > least
    assert (ends > 0).all()
    assert (ends < 1).all()


@pytest.mark.parametrize("n", [3, 5, 40, 160, 400])
def test_a_share_of_all_lies_in_its_own_interval(n):
    assert wilson(1.0, n)[1] == 1
    assert wilson(0.0, n)[0] == 0
