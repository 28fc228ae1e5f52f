"""The pages of docs/results that scripts write are what follows from the stored values."""

import importlib
import json
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
RESULTS = SCRIPTS.parent / "docs/results"
WRITTEN_BY = {
    "requests": "one_after_another",
    "own-data": "own_data",
    "finite-differences": "bench_finite_differences",
    "quickstart": "quickstart_results",
}
WRITTEN_BY |= dict.fromkeys(("smollm2", "smollm2_facts", "language_tiny"), "language_results")
NAMED = {"attack_results", "benchmark_results", "language_results"}
"""Scripts that write several pages, each of which names its values."""


def page_of(data, monkeypatch):
    """The page's text, from the stored values."""
    monkeypatch.syspath_prepend(SCRIPTS)
    name = WRITTEN_BY.get(data.stem) or ("attack_results" if data.stem.startswith("attacks") else "benchmark_results")
    stored = json.loads(data.read_text(encoding="utf-8"))
    page = importlib.import_module(name).page
    return page(stored, data.stem) if name in NAMED else page(stored)


@pytest.mark.parametrize("data", sorted((RESULTS / "data").glob("*.json")), ids=lambda path: path.stem)
def test_text_and_values_agree(data, monkeypatch):
    assert (RESULTS / f"{data.stem}.md").read_text(encoding="utf-8") == page_of(data, monkeypatch), (
        "a page is written by its script, never by hand: run it with --only-table"
    )


def test_without_a_retrained_model_no_goal_is_named(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    stored = json.loads((RESULTS / "data/smollm2.json").read_text(encoding="utf-8"))
    for by_side in (x for e in stored["experiments"] for x in e["values"].values()):
        by_side.pop("retrained", None)
    page = importlib.import_module("language_results").page(stored, "smollm2_facts")
    assert "There is no retrained model" in page
    assert "*retrained*" not in page
    assert "*target*" in page


def test_what_was_not_measured_again_stays(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    with_stored = importlib.import_module("benchmark_results").with_stored
    old = {"searched": {"a": [1], "b": [2]}, "values": {"s": {"a": {"x": 1}, "b": {"x": 2}}}, "note": "old"}
    new = {"searched": {"b": [3]}, "values": {"s": {"b": {"x": 4}}}, "note": "new"}
    both = {"searched": {"a": [1], "b": [3]}, "values": {"s": {"a": {"x": 1}, "b": {"x": 4}}}, "note": "new"}
    assert with_stored(new, old) == both
