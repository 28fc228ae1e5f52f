"""Utility at equal forgetting, on histories made by hand."""

import csv
import html

import pytest

from ofmu_pl.report import report
from ofmu_pl.report.collect import collect
from ofmu_pl.report.contents import tables
from ofmu_pl.report.equal import crossing, equal_forgetting
from tests.helpers.folders import metrics, results

PAIR = ("forget_Q_A_Prob", "retain_Q_A_Prob")
GOAL = (0.2, 0.95)


def run(points, pair=PAIR, goal=GOAL, **more):
    """Results of one run: its points are (forgotten, kept) at the start, every ten steps, and at the end."""
    start, *along, end = [dict(zip(pair, point, strict=True)) for point in points]
    history = [{"step": 10 * (i + 1), "metrics": metrics(values, {})} for i, values in enumerate(along)]
    return results(end, start, dict(zip(pair, goal, strict=True)), history=history[::-1], **more)


def equal(bench, points, **more):
    """The table of methods' runs, one a seed."""
    runs = {("a", m, seed): run(p, seed=seed, **more) for m, seeds in points.items() for seed, p in enumerate(seeds)}
    bench.experiment("e", "table", runs)
    return equal_forgetting(collect(bench.folder).experiments[0].groups["a"])


@pytest.mark.parametrize(
    ("course", "kept", "between"),
    [
        ([(1.0, 1.0), (0.6, 0.9), (0.0, 0.6)], 0.7, "1 to 2"),  # 0.9 + (0.2 - 0.6) / (0.0 - 0.6) * (0.6 - 0.9)
        ([(1.0, 1.0), (0.2, 0.8), (0.0, 0.9)], 0.8, "1 to 2"),  # measured there
        ([(1.0, 1.0), (0.2, 0.8), (0.2, 0.7)], 0.7, "1 to 2"),  # stays there
        ([(1.0, 1.0), (0.0, 0.5), (0.4, 0.7), (0.0, 0.9)], 0.8, "2 to 3"),  # thrice: the last counts
        ([(1.0, 1.0), (0.0, 0.5), (0.4, 0.7)], 0.6, "1 to 2"),  # came back
        ([(0.0, 1.0), (0.4, 0.6)], 0.8, "0 to 1"),  # upwards, as accuracies of another class
    ],
)
def test_what_is_kept_is_linear_between_the_last_two_points_around_the_level(course, kept, between):
    found = crossing([(str(i), *point) for i, point in enumerate(course)], 0.2)
    assert found == (pytest.approx(kept), between)


def test_a_course_that_does_not_reach_the_level_has_no_value():
    assert crossing([("start", 1.0, 1.0), ("10", 0.21, 0.9), ("end", 0.3, 0.9)], 0.2) is None
    assert crossing([], 0.2) is None


def test_a_row_a_method_over_seeds(bench):
    points = {
        "ofmu": [[(1.0, 1.0), (0.4, 0.9), (0.0, 0.7)], [(1.0, 1.0), (0.2, 0.6), (0.1, 0.9)], [(1.0, 1.0)] * 3],
        "npo": [[(1.0, 1.0), (0.9, 0.9), (0.8, 0.9)]] * 2,
        "rmu": [[(1.0, 1.0), (0.1, 0.4)]],
    }
    retrained, ofmu, npo, rmu = equal(bench, points).rows
    assert [e.numbers.get("") for e in retrained[1:4]] == pytest.approx([0.2, 0.95, 0.95])
    assert ofmu[3].numbers["n"] == 2
    assert ofmu[3].numbers[""] == pytest.approx(0.7)
    assert ofmu[3].numbers["std"] == pytest.approx(0.02**0.5)  # of 0.8 and 0.6
    assert [e.text for e in ofmu[4:]] == ["2 of 3", "10 to end"]
    assert not npo[3].numbers
    assert npo[4].text == "none of 2"
    assert not rmu[3].numbers, "from its start to its end nobody looked"
    assert "measured" in rmu[4].text


@pytest.mark.parametrize("pair", [("UA", "TA"), ("forget_accuracy", "VA"), ("wmdp_bio_efficacy", "mmlu_accuracy")])
def test_the_pair_is_one_that_runs_have_along_their_way(bench, pair):
    points = [(90.0, 80.0), (50.0, 60.0), (10.0, 70.0)]
    table = equal(bench, {"ofmu": [points]}, pair=pair, goal=(70.0, 75.0))
    assert pair[0].replace("_", " ") in table.title
    assert table.rows[1][3].numbers[""] == pytest.approx(70.0)


def test_without_a_history_or_a_retrained_model_there_is_no_table(bench):
    assert not equal(bench, {"ofmu": [[(1.0, 1.0), (0.1, 0.9)]]}).rows
    assert not equal(bench, {"ofmu": [[(1.0, 1.0), (0.3, 0.9), (0.1, 0.9)]]}, reference=None).rows


def test_it_stands_behind_the_main_table_in_every_format(bench):
    bench.experiment("e", "table", {("a", "ofmu", 0): run([(1.0, 1.0), (0.6, 0.9), (0.0, 0.6)])})
    made = tables(collect(bench.folder).experiments[0])
    assert [table.name for table in made[:2]] == ["e-a-results", "e-a-equal"]
    page = report(bench.folder)
    assert made[1].title in html.unescape(page.read_text())
    (_, row) = csv.DictReader((page.parent / "tables/e-a-equal.csv").open())
    assert float(row["retain Q A Prob at equal forgetting"]) == pytest.approx(0.7)
    assert row["between steps"] == "10 to end"
