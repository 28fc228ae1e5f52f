"""Statistics against hand-worked numbers and against each other."""

import math

import numpy as np
import pytest
from scipy import stats

from ofmu_pl.metrics.bootstrap import holm
from ofmu_pl.report.collect import collect
from ofmu_pl.report.derived import costs
from ofmu_pl.report.statistics import (
    compare,
    distance,
    front,
    least_p,
    merit,
    overall,
    paired,
    spread,
    spread_of,
    trade_off,
)
from tests.helpers.folders import TEXT_BEFORE, TEXT_GOAL, results, table


def experiment(bench, values, **more):
    """One scenario; ``values``: metric values by method, one a seed."""
    runs = {
        ("a", m, seed): results(dict(TEXT_GOAL, **v), TEXT_BEFORE, TEXT_GOAL, seed, m)
        for m, by_seed in values.items()
        for seed, v in enumerate(by_seed)
    }
    bench.experiment("e", "table", runs, **more)
    return collect(bench.folder).experiments[0]


def test_spread():
    s = spread([1.0, 2.0, 6.0])
    assert (s.n, s.mean, s.std) == (3, 3.0, pytest.approx(math.sqrt(7)))
    assert (s.low, s.high) == pytest.approx(stats.ttest_1samp([1.0, 2.0, 6.0], 0).confidence_interval(0.95))
    assert math.isnan(spread([4.0]).std)
    assert spread([]).n == 0


def test_the_interval_of_one_entry_is_that_over_its_rows():
    one = spread_of([{"value": 0.5, "interval": [0.4, 0.7]}, {"value": None}], unit=100)
    assert (one.n, one.mean, one.low, one.high) == (1, 50.0, 40.0, 70.0)
    assert spread_of([{"value": 1.0, "interval": [0, 2]}, {"value": 3.0}]) == spread([1.0, 3.0])
    assert math.isnan(spread_of([{"value": 1.0, "interval": 3}]).low)


def test_the_front_holds_whom_no_other_beats_in_one_and_equals_in_the_other(bench):
    points = {"ofmu": (0.3, 0.9), "npo": (0.1, 0.7), "rmu": (0.4, 0.8), "wga": (0.1, 0.6)}
    values = {m: [{"forget_quality_D": d, "model_utility": u}] * 2 for m, (d, u) in points.items()}
    found = experiment(bench, values)
    pair = trade_off(found)
    assert pair == ("forget_quality_D", "model_utility")
    assert front(found, pair) == ["ofmu", "npo"], "wga forgets as npo does, and keeps less"


@pytest.mark.parametrize(("n", "least"), [(2, 0.5), (3, 0.25), (5, 0.0625), (6, 0.03125), (14, 2**-13), (15, 0.0002)])
def test_the_sign_flip_test_is_exact(n, least):
    """All differences on one side give the least p there is."""
    d = np.arange(1.0, n + 1)
    p_t, p_sign, low, high = paired(d)
    assert p_sign == pytest.approx(least)
    assert least_p(n) == p_sign, "the report says what is least"
    assert p_t == pytest.approx(stats.ttest_rel(d, np.zeros(n)).pvalue)
    assert low < d.mean() < high
    assert paired(-d)[1] == pytest.approx(least)


def test_the_sign_flip_test_counts_by_hand():
    """Of 8 sign patterns of (1, 2, -1), means at least as large as 2/3: +++, ++-, -++ ... counted two-sided."""
    d = [1.0, 2.0, -1.0]
    sums = [sum((1 if s else -1) * x for s, x in zip(signs, d, strict=True)) for signs in np.ndindex(2, 2, 2)]
    above, below = sum(s >= 2 for s in sums), sum(s <= 2 for s in sums)
    assert paired(d)[1] == pytest.approx(min(1.0, 2 * min(above, below) / 8))


def test_the_sign_flip_test_of_many_pairs_says_the_same_each_time():
    d = np.random.default_rng(0).normal(0.3, 1.0, 20)
    p = paired(d)[1]
    assert paired(d)[1] == p
    flips = np.random.default_rng(1).choice([-1, 1], (20000, 20)) @ d
    assert p == pytest.approx((np.abs(flips) >= abs(d.sum())).mean(), abs=0.02)


def test_differences_that_do_not_vary_have_no_t_test():
    p_t, _, low, high = paired([0.5, 0.5, 0.5])
    assert math.isnan(p_t)
    assert (low, high) == (0.5, 0.5)
    assert math.isnan(paired([1.0])[0])


def test_holm_against_the_definition():
    p = [0.01, 0.04, float("nan"), 0.03, 0.005]
    assert holm(p)[4] == pytest.approx(0.02)
    assert holm(p)[0] == pytest.approx(0.03)
    assert holm(p)[3] == holm(p)[1] == pytest.approx(0.06)
    assert math.isnan(holm(p)[2])


def test_merit_knows_targets_and_directions(bench):
    e = experiment(bench, {"ofmu": [{"forget_truth_ratio": 0.5, "model_utility": 0.9, "forget_quality_D": 0.2}]})
    key = ("a", 0)
    assert merit(e, "ofmu", "forget_truth_ratio")[key] == pytest.approx(-0.1)  # to 0.6, the retrained model's
    assert merit(e, "ofmu", "model_utility")[key] == 0.9
    assert merit(e, "ofmu", "forget_quality_D")[key] == pytest.approx(-0.2)


def test_a_run_without_a_goal_has_no_merit_beside_runs_with_one(bench):
    goals = {"ofmu": TEXT_GOAL, "npo": {}}
    runs = {("a", m, 0): results(dict(TEXT_GOAL), TEXT_BEFORE, goal, 0, m) for m, goal in goals.items()}
    bench.experiment("e", "table", runs)
    e = collect(bench.folder).experiments[0]
    assert [len(merit(e, m, "forget_truth_ratio")) for m in goals] == [1, 0]
    assert [len(merit(e, m, "model_utility")) for m in goals] == [1, 1]


def test_ours_is_compared_with_each_by_seed(bench):
    """Seeds differ by far more than methods: only a paired test sees it."""
    base = [0.3, 0.5, 0.7, 0.9]
    noise = [0.001, -0.001, 0.002, 0.0]
    shifts = {"ofmu": (0.0, 0), "npo": (-0.05, 1), "rmu": (0.05, 1), "kl": (0.0, 40)}
    pairs = list(zip(base, noise, strict=True))
    e = experiment(bench, {m: [{"model_utility": x + by + k * n} for x, n in pairs] for m, (by, k) in shifts.items()})
    found = {c.other: c for c in compare(e, "model_utility")}
    assert {m: c.verdict for m, c in found.items()} == {"npo": 1, "rmu": -1, "kl": 0}
    assert found["npo"].difference == pytest.approx(0.05, abs=1e-3)
    assert least_p(found["npo"].n) == 0.125
    assert found["npo"].p_sign == 0.125
    assert all(c.p_holm >= c.p_t for c in found.values())
    assert stats.ttest_ind([0.3, 0.5, 0.7, 0.9], [0.25, 0.45, 0.65, 0.85]).pvalue > 0.5


def test_distance_to_the_retrained_model(bench):
    e = experiment(bench, {"ofmu": [{"forget_truth_ratio": 0.5, "model_utility": 0.87}]})
    found = distance(e, "ofmu", ["forget_truth_ratio", "model_utility"])
    assert found == {("a", 0): pytest.approx(0.1)}
    assert distance(e, "retrained", ["forget_truth_ratio"]) == {("a", 0): 0.0}


def test_distance_takes_per_cent_as_hundredths(bench):
    bench.experiment("images", "table", table(images=True, methods={"ofmu": 0.5}, scenarios=("a",), seeds=(0,)))
    (e,) = collect(bench.folder).experiments
    gap = abs(e.values("ofmu", "UA")["a", 0] - 100.0)
    assert distance(e, "ofmu", ["UA", "avg_gap"]) == {("a", 0): pytest.approx(gap / 100)}


def test_overall_is_the_librarys_score_by_seed(bench):
    values = {"ofmu": [{"forget_quality": 0.5, "model_utility": 0.6, "forget_truth_ratio": 0.6}],
              "npo": [{"forget_quality": 0.1, "model_utility": 0.3, "forget_truth_ratio": 0.3}]}  # fmt: skip
    e = experiment(bench, values)
    assert overall(e) == {"ofmu": {("a", 0): 1.0}, "npo": {("a", 0): pytest.approx(0.4)}}


def test_costs_are_ratios_to_the_ascent_of_the_same_seed(bench):
    runs = table(scenarios=("a",), methods={"ofmu": 0, "grad_ascent": 1}, seeds=(0, 1))
    for (_, method, seed), run in runs.items():
        run["cost"] |= {"training_seconds": (1 + seed) * (60.0 if method == "ofmu" else 2.0), "peak_memory_bytes": 3e9}
        run["provenance"]["steps"] = 10 if method == "ofmu" else 1
    bench.experiment("cost", "cost", runs)
    (e,) = collect(bench.folder).experiments
    found = costs(e, "ofmu")
    assert list(found["time_over_GA_step"].values()) == [3.0, 3.0]
    assert list(found["peak_memory_over_GA"].values()) == [1.0, 1.0]
