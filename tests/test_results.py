"""The pages of docs/results that scripts/results.py writes are what follows from the stored values."""

import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ofmu_pl.report.contents import tables
from ofmu_pl.report.runs import StudiedRun, Study
from ofmu_pl.support.records.manifest import MethodRecord
from ofmu_pl.support.records.results import ReferenceRecord, Results
from tests.helpers.folders import Benchmark, table

SCRIPTS = Path(__file__).parents[1] / "scripts"
RESULTS = SCRIPTS.parent / "docs/results"
MOST_WORDS = 1500
DATA = sorted((RESULTS / "data").glob("*.json"))


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("results")


@pytest.mark.parametrize("data", DATA, ids=lambda path: path.stem)
def test_text_and_values_agree(data, script):
    below = (RESULTS / f"{data.stem}.md").read_text(encoding="utf-8").partition(script.MARK)[2]
    stored = script.Stored.read(data)
    found = script.every_table(stored)
    assert below.strip() == script.page(data.stem, stored, found).strip(), (
        "what stands below the mark is never written by hand: run scripts/results.py"
    )
    files = script.csv_files(data.stem, found)
    assert len(files) == len(found), "each table has a file of its own"
    assert {path: path.read_text(encoding="utf-8") for path in data.with_suffix("").iterdir()} == files


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_answers_in_so_many_words(page):
    words = [word for word in page.read_text(encoding="utf-8").split() if re.search(r"\w", word)]
    assert len(words) <= MOST_WORDS


@pytest.mark.usefixtures("script")
def test_the_page_on_ofmu_follows_from_the_others():
    page = importlib.import_module("where_ofmu_stands").page()
    assert (RESULTS / "ofmu.md").read_text(encoding="utf-8").endswith(page)


def test_runs_are_stored_and_shown_again(script, tmp_path):
    bench = Benchmark(tmp_path)
    bench.experiment("e", "table", table(scenarios=["forget05"]))
    script.store("bench", [tmp_path], None).write(tmp_path / "stored.json")
    found = script.Stored.read(tmp_path / "stored.json")
    (e,) = found.experiments
    assert {run.value("model_utility", "retrained") for run in e.finished} == {0.97}
    assert e.declared("forget_quality").tested_as == "forget_quality_D"
    assert "| **ofmu** | 3 |" in script.page("bench", found, script.every_table(found))


def test_problems_of_experiments_that_were_not_run_again_stay(script, tmp_path):
    bench = Benchmark(tmp_path)
    bench.experiment("e", "table", table(scenarios=["forget05"]))
    other = replace(experiment([0], "old", a=(1, {0: 1})), name="other")
    before = script.Stored([], {}, [other], problems=["E: a run failed"])
    assert "E: a run failed" in script.store("bench", [tmp_path], before).problems
    before = script.Stored([], {}, [], problems=["E: a run failed"])
    assert "E: a run failed" not in script.store("bench", [tmp_path], before).problems


def test_the_readme_prints_the_stored_quickstart(script):
    """The table of seed 0 as the command prints it."""
    text = (SCRIPTS.parent / "README.md").read_text(encoding="utf-8")
    shown = text.partition("At the end it prints:")[2].partition("```text\n")[2].partition("\n```")[0].splitlines()
    lines = [re.split(r" {2,}", line.strip()) for line in shown if re.search(r"\w {2,}\S", line)]
    (stored,) = script.Stored.read(RESULTS / "data/quickstart.json").experiments
    first = replace(stored, seeds=[0], runs=[run for run in stored.runs if run.seed == 0])
    (results,) = [table for table in tables(first) if table.name.endswith("-results")]
    rows = [results.head, *([entry.text + entry.mark for entry in row] for row in results.rows)]
    turned = [list(filter(None, row)) for row in zip(*rows, strict=True)]
    assert lines == turned


def experiment(seeds, note, **methods):
    """Each method by its choice and its values by seed."""
    runs = [
        StudiedRun("s", m, seed, "", "finished", results=Results({"x": {"value": x}}, reference=ReferenceRecord("")))
        for m, (_, by_seed) in methods.items()
        for seed, x in by_seed.items()
    ]
    records = {m: MethodRecord(searched={"s": {"choice": c, "scores": {str(c): 1}}}) for m, (c, _) in methods.items()}
    asked = {"ours": None, "gradients": None, "base": None, "scenarios": {"s": {}}, "seeds": seeds, "cells": []}
    return Study(name="e", title="E", note=note, methods=records, runs=runs, **asked)


def test_what_was_not_measured_again_stays(script):
    old = experiment([0, 1], "old", a=(1, {0: 1}), b=(2, {0: 2, 1: 3}), c=(3, {0: 4}))
    old.methods["b"].searched["s"]["scores"] = searched = {"2": 1, "3": 0}
    new = experiment([1, 2], "new", b=(2, {1: 5, 2: 6}), c=(4, {2: 7}), a=(None, {}))
    both = script.with_stored(new, old)
    assert {(r.method, r.seed): r.value("x") for r in both.runs} == {
        **{("a", 0): 1, ("b", 0): 2, ("b", 1): 5, ("b", 2): 6},
        ("c", 2): 7,
    }
    assert (both.note, both.seeds) == ("new", [0, 1, 2])
    assert {m: x.searched["s"]["choice"] for m, x in both.methods.items()} == {"a": 1, "b": 2, "c": 4}
    assert both.methods["b"].searched["s"]["scores"] == searched, "the seeds of now had one candidate"
