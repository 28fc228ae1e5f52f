"""What attacks brought back: the table, the column of the main table, the figures; what is missing is said."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import rc_context

from ofmu_pl.report.attacks import WORST, attack_table, returned, shares, worst, worst_shares
from ofmu_pl.report.collect import collect
from ofmu_pl.report.contents import attack_tables, tables
from ofmu_pl.report.figures import attack_pictures
from ofmu_pl.report.figures.attacks import curves
from ofmu_pl.report.figures.style import RC, Look
from ofmu_pl.report.results import NAMED, in_short
from ofmu_pl.support.records.results import ACROSS, AcrossRecord, AttacksRecord
from tests.helpers.attacks import attack, attacked
from tests.helpers.folders import METHODS, TEXT_BEFORE, TEXT_GOAL, results, table

NAMES = ["relearn_retain", "leak", "quantised", "lira"]
LOOK = Look(list(METHODS), ["ofmu"])
FORGET = ["forget05"]


@pytest.fixture
def experiment(bench):
    """Three seeds of six methods under four attacks."""
    runs = table(scenarios=FORGET)
    bench.experiment("e", "table", runs, attacks=attacked(runs, METHODS, NAMES), metrics=["model_utility"])
    found = collect(bench.folder)
    assert not found.problems
    return found.experiments[0]


def test_shares_are_means_over_seeds_in_per_cent(experiment):
    shares = [r.attacks.attacks["leak"].returns["value"] for r in experiment.runs if r.method == "npo"]
    found = returned(experiment, "npo", "leak")
    assert (found.n, found.mean) == (3, pytest.approx(100 * np.mean(shares)))
    assert found.low < found.mean < found.high
    assert returned(experiment, "simnpo", "leak").n == 0


def one_run(bench, **more):
    """One run of a method each that one attack was made on."""
    records = {("a", method, 0): {"leak": record} for method, record in more.items()}
    runs = {key: results(TEXT_GOAL, TEXT_BEFORE, TEXT_GOAL, method=key[1]) for key in records}
    bench.experiment("e", "table", runs, attacks=records)
    return collect(bench.folder).experiments[0]


LEAK = attack("leak", 0.4, np.random.default_rng(0))


def test_of_one_run_the_interval_is_over_rows(bench):
    experiment = one_run(bench, ofmu=LEAK, npo=replace(LEAK, returns={"value": 0.5, "interval": None}))
    found = returned(experiment, "ofmu", "leak")
    assert [found.low, found.high] == pytest.approx([100 * x for x in LEAK.returns["interval"]])
    first, second = attack_table(experiment.groups["a"]).rows
    assert first[1].small.startswith("[")
    assert (second[1].text, second[1].small) == ("50.00", "")


def test_sentences_say_what_comes_back_and_who_is_nearest(bench, experiment):
    (back, near) = in_short(experiment)
    means = {m: s.mean for m, s in worst_shares(experiment).items()}
    assert len(means) > NAMED
    for method in METHODS:
        named = method in ("ofmu", min(means, key=means.__getitem__), max(means, key=means.__getitem__))
        assert (f" after {method}" in back) == named
    assert re.search(r"is least after \w+: [\de.-]+, before [\de.-]+\.$", near)


def test_sentences_name_all_of_a_few_methods(bench):
    back, _ = in_short(one_run(bench, ofmu=LEAK, npo=replace(LEAK, returns={"value": 0.5, "interval": [0.4, 0.6]})))
    assert re.search(r"% \[.*\] after ofmu, 50.00 % \[40.00, 60.00\] after npo\.$", back)


def test_what_is_found_counts_shared_models_once_a_seed(experiment):
    found, cost = attack_tables(experiment)[1:3]
    assert [row[0].text for row in found.rows] == ["target", "retrained", *METHODS]
    assert {row[1].numbers.get("n") for row in found.rows if row[1].numbers} == {3}
    records = [r.attacks.attacks["leak"] for r in experiment.runs if r.method == "npo"]
    values = [r.metrics["unlearned"][r.found]["value"] for r in records]
    (npo,) = (row for row in found.rows if row[0].text == "npo")
    assert npo[1 + NAMES.index("leak")].numbers[""] == pytest.approx(np.mean(values))
    assert [row[0].text for row in cost.rows] == [name.replace("_", " ") for name in NAMES]


def test_a_control_that_only_a_later_method_has_is_shown(experiment):
    for run in experiment.runs:
        for record in run.attacks.attacks.values() if run.method == next(iter(METHODS)) else ():
            del record.metrics["target"]
    found = attack_tables(experiment)[1]
    assert found.rows[0][0].text == "target"
    assert found.rows[0][1].numbers["n"] == 3


def test_the_table_has_a_column_an_attack_marks_the_worst_and_says_what_broke(experiment):
    found, *_ = attack_tables(experiment)
    assert " npo (seeds 0, 1, 2): " in found.notes[-1]
    assert found.head == ["method", "relearn retain → (%)", "leak → (%)", "quantised → (%)", "lira → (%)"]
    rows = {row[0].text: row[1:] for row in found.rows}
    assert list(rows) == list(METHODS)
    assert [e.text for e in rows["rmu"]] == ["–"] * 4, "nobody attacked it"
    assert rows["simnpo"][1].text == "–"
    assert [e.mark for e in rows["npo"]].count(WORST) == 1
    for column in zip(*(row for name, row in rows.items() if name != "rmu"), strict=True):
        known = [e for e in column if e.numbers]
        assert [e.best for e in known] == [abs(e.numbers[""]) == min(abs(k.numbers[""]) for k in known) for e in known]


def test_a_missing_model_is_a_note(bench):
    one_run(bench, ofmu=LEAK)
    record = AttacksRecord({"leak": replace(LEAK, returns={})}, remarks=["There is no retrained model at hand."])
    record.write(bench.folder / "e/a/ofmu/seed_0/version_0/attacks.json")
    (experiment,) = collect(bench.folder).experiments
    found, *_ = attack_tables(experiment)
    assert found.rows[0][1].text == "–"
    assert record.remarks[0] in found.notes
    assert worst(shares(experiment, "ofmu")) is None
    assert "recovered → (%)" not in tables(experiment)[0].head


def test_the_main_table_has_the_worst_attacks_share(experiment):
    main = tables(experiment)[0]
    at = main.head.index("recovered → (%)")
    rows = {row[0].text: row[at] for row in main.rows}
    for method in ("ofmu", "npo"):
        shares = [returned(experiment, method, a).mean for a in NAMES]
        assert rows[method].numbers[""] == max(shares)
    assert [rows[m].text for m in ("before", "retrained", "rmu")] == ["–"] * 3
    assert any(note.startswith("recovered: ") for note in main.notes)


def test_curves_are_means_over_seeds_and_a_control_counts_once(experiment):
    found = curves(experiment, "relearn_retain")
    records = [r.attacks.attacks["relearn_retain"] for r in experiment.runs if r.method == "npo"]
    expected = np.mean([r.curves["unlearned"] for r in records], axis=0)
    np.testing.assert_allclose(list(found["npo"].values()), expected)
    assert list(found["npo"]) == records[0].x
    np.testing.assert_allclose(list(found["retrained"].values()), records[0].curves["retrained"])
    assert set(found) == {*METHODS, "retrained", "target"} - {"rmu"}
    assert curves(experiment, "lira") == {}


def test_other_settings_are_a_problem(bench):
    runs = table(scenarios=FORGET, seeds=(0,), methods={"ofmu": 0.0, "grad_diff": 0.6, "rmu": 0.2})
    attacks = attacked(runs, METHODS, ["leak"])
    attacks["forget05", "grad_diff", 0]["leak"].settings["steps"] = 7
    bench.experiment("e", "table", runs, attacks=attacks)
    (problem,) = collect(bench.folder).problems
    assert re.match("e: .*'leak' .* e/forget05/", problem)


@pytest.mark.parametrize(
    "harm",
    [
        lambda x: x.update(returns={"value": "much", "interval": 3}),
        lambda x: x.update(x=[[1], None, 2], curves={"unlearned": ["a", 2, 1e400]}),
        lambda x: x.update(metrics={}, x=[]),
    ],
)
def test_what_others_wrote_breaks_nothing(bench, harm):
    one_run(bench, ofmu=LEAK)
    place = bench.folder / "e/a/ofmu/seed_0/version_0/attacks.json"
    content = json.loads(place.read_text())
    harm(content["attacks"]["leak"])
    place.write_text(json.dumps(content))
    found = collect(bench.folder)
    assert attack_tables(found.experiments[0])
    with rc_context(RC):
        list(attack_pictures(found.experiments[0], LOOK))


SINGLE = {"models": 8.0, "epsilon": 1.5, "forgetting_score": 0.19, "u_lira_auc": 0.61}
SINGLE |= {"epsilon_null_low": 1.25, "epsilon_null_high": 1.75, "worst_example_auc": 1.0}
"""Figures of attacks on single rows."""
SETS = ["forget01", "forget05"]


def test_single_rows_over_the_runs_of_a_method_are_a_table_that_says_how_many(bench):
    runs = table(scenarios=SETS, methods={"ofmu": 0.0, "npo": 0.3, "rmu": 0.2})
    bench.experiment("e", "table", runs)
    other = SINGLE | {"models": 4.0, "score": 0.2, "epsilon": "much"}
    for method, values in (("ofmu", SINGLE), ("npo", other)):
        AcrossRecord({"confidence": values}).write(bench.folder / f"e/{SETS[0]}/{method}" / ACROSS)
    (bench.folder / f"e/{SETS[1]}/rmu" / ACROSS).write_text("[")
    collected = collect(bench.folder)
    (problem,) = collected.problems
    assert ACROSS in problem
    found, *_ = attack_tables(collected.experiments[0])
    assert found.name == f"e-{SETS[0]}-across"
    heads = ["scenario", "method", "attack", "N", "epsilon ↓", "forgetting score ↑", "u lira auc", "score ↑"]
    assert found.head == heads
    assert [[e.text for e in row] for row in found.rows] == [
        [SETS[0], "ofmu", "confidence", "8", "1.500", "0.190", "0.610", "–"],
        [SETS[0], "npo", "confidence", "4", "–", "0.190", "0.610", "0.200"],
    ]
    assert found.rows[0][4].small == "(1.250 to 1.750)"
    assert found.ours == {0}
    assert [note.partition(":")[0] for note in found.notes[2:]] == ["In brackets", "score"]


def test_the_page_asks_whether_it_comes_back(page):
    text = page.read_text()
    assert text.count('<h3 id="back-e-') == 2, "two experiments were attacked"
    assert text.count('href="#back-e-') == 2, "the contents lead to both"
    rows = csv.DictReader((page.parent / "tables/authors-forget01-attacks.csv").open())
    assert {r["method"]: r["leak (%)"] != "" for r in rows} == {m: m not in ("rmu", "simnpo") for m in METHODS}
    drawn = {p.stem for p in (page.parent / "figures").glob("*-attack.png")}
    assert drawn == {f"authors-{a}-attack" for a in ("relearn_retain", "leak", "quantised")}
