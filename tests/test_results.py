"""The pages of docs/results that scripts write are what follows from the stored values."""

import importlib
import json
from itertools import pairwise
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


def test_arrows_are_the_declared_directions(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.syspath_prepend(SCRIPTS.parent / "docs")
    ways = importlib.import_module("pages").WAYS
    known = importlib.import_module("makers.metrics").declared()
    assert {"↑", "↓", "→"} == set(ways.values())
    for name, way in ways.items():
        if way == "→":
            assert known[name].group in ("forgotten", "attacks")
        else:
            assert known[name].higher_is_better == (way == "↑")


def test_without_a_retrained_model_no_goal_is_named(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    stored = json.loads((RESULTS / "data/smollm2.json").read_text(encoding="utf-8"))
    for by_side in (x for e in stored["experiments"] for x in e["values"].values()):
        by_side.pop("retrained", None)
    page = importlib.import_module("language_results").page(stored, "smollm2")
    assert "There is no retrained model" in page
    assert "*retrained*" not in page
    assert "*target*" in page


def test_what_was_not_measured_again_stays(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    with_stored = importlib.import_module("benchmark_results").with_stored

    def summary(seeds, note, **methods):
        """Each method by its choice and its values by seed."""
        searched = {m: [{"choice": choice, "scores": {note: 1}}] for m, (choice, _) in methods.items()}
        values = {m: {"x": by_seed} for m, (_, by_seed) in methods.items()}
        return {"seeds": seeds, "note": note, "searched": searched, "values": {"s": values}}

    old = summary([0, 1], "old", a=(1, {"0": 1}), b=(2, {"0": 2, "1": 3}), c=(3, {"0": 4}))
    new = summary([1, 2], "new", b=(2, {"1": 5, "2": 6}), c=(4, {"2": 7}))
    both = summary([0, 1, 2], "new", a=(1, {"0": 1}), b=(2, {"0": 2, "1": 5, "2": 6}), c=(4, {"2": 7}))
    both["searched"]["a"] = old["searched"]["a"]
    assert with_stored(new, old) == both
    new["searched"]["a"], new["values"]["s"]["a"] = [], {"x": {}}
    assert with_stored(new, old) == both, "what has not been searched and run yet is lacking, too"


def test_what_holds_in_the_mean_only_is_told_from_what_holds_on_every_seed(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    section = importlib.import_module("benchmark_tables").section
    points = {"a": [(0.1, 0.9), (0.3, 0.9)], "b": [(0.2, 0.8), (0.4, 0.8)], "c": [(0.3, 0.8), (0.2, 0.85)]}
    values = {
        m: {
            "forget_Q_A_Prob": {str(s): f for s, (f, _) in enumerate(x)},
            "retain_Q_A_Prob": {str(s): k for s, (_, k) in enumerate(x)},
        }
        for m, x in points.items()
    }
    e = {"searched": dict.fromkeys(points), "metrics": ["forget_Q_A_Prob", "retain_Q_A_Prob"], "seeds": [0, 1]}
    ends = {"retrained": {x: {} for x in e["metrics"]}, "before": {x: {} for x in e["metrics"]}}
    *_, said = section(e, values | ends)
    # a is better than b on both seeds, and than c on the first alone.
    assert said.endswith(
        "better on both sides than a. In the mean, but not on every seed, some method is better than c."
    )
    for x in values["b"].values():
        del x["1"]
    *_, said = section(e, values | ends)
    assert said.endswith(" On seed 0 alone: b.")


def test_a_page_names_the_dates_of_all_that_stays(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    pages = importlib.import_module("pages")
    today = pages.facts()
    old = today | {"date": "2025-01-02"}
    assert pages.facts(today) == today | {"earlier": []}
    assert "(2025-01-02, " in pages.written_by("s.py", "n", pages.facts(old))
    assert f"; {today['date']}, " in pages.written_by("s.py", "n", pages.facts(old))
    assert pages.facts(pages.facts(old))["earlier"] == [old]


@pytest.mark.parametrize("page", ["own-data", "requests"])
def test_pages_say_which_way_is_better(page):
    text = (RESULTS / f"{page}.md").read_text(encoding="utf-8")
    heads = [line for line, rule in pairwise(text.splitlines()) if set(rule) == {"|", "-"}]
    tables = [head for head in heads if "side" not in head]  # tables of texts have nothing to be better in
    assert tables
    assert all({"↑", "↓", "→"} & set(head) for head in tables)
    assert "([what they mean](../words.md#numbers))" in text


def test_models_that_runs_share_count_once_a_seed(monkeypatch):
    """The retrained model of a seed stands beside every method: counted for each, its deviation was too small."""
    monkeypatch.syspath_prepend(SCRIPTS)
    script = importlib.import_module("attack_results")

    def run(method, seed):
        sides = {side: {"forget_Q_A_Prob": 0.1 * seed + k} for k, side in enumerate(("after", "target", "retrained"))}
        found = {"unlearned": 0.5, "target": 0.9, "retrained": 0.1 * seed}
        cost = {m: 1 for m in found}
        attack = {"found": found, "returns": {"value": 0.5}, "gradients": cost, "seconds": cost, "broken": {}}
        return {"method": method, "seed": seed, "sides": sides, "attacks": {"sample": attack}}

    runs = [run(method, seed) for method in ("a", "b", "c") for seed in (1, 3)]
    text = script.page(script.facts() | {"runs": runs, "across": {}, "settings": {}}, "attacks")
    lines = [line for line in text.splitlines() if line.startswith("| *retrained*")]
    assert lines[0].endswith("| 2.2 ± 0.141 |"), "2.1 and 2.3: sqrt(2) * 0.1"
    assert lines[1].endswith("| 0.2 ± 0.141 |"), "0.1 and 0.3"
