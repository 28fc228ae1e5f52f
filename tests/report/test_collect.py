"""Bad input becomes one sentence, and the rest stays."""

import json
import math
import os
import re

import pytest
from scipy.stats import ks_2samp

from ofmu_pl.metrics import Metric, tofu_items
from ofmu_pl.report.claims import claims
from ofmu_pl.report.collect import collect
from ofmu_pl.report.command import report
from ofmu_pl.report.contents import tables
from ofmu_pl.report.figures import studies
from ofmu_pl.report.figures.style import Look
from ofmu_pl.report.runs import declaration
from ofmu_pl.support.errors import UserError
from tests.helpers.folders import DECLARED, TEXT_BEFORE, TEXT_GOAL, results, table, write

VALUES = dict(TEXT_GOAL, forget_quality=0.5)
ONE = ("forget05",)
NPO = "authors/forget05/npo/seed_1/latest/results.json"


def run(path, seed=0, **more):
    """An ordinary run in ``METHOD/version_0`` with ``latest``."""
    write(path / "version_0/results.json", results(VALUES, TEXT_BEFORE, TEXT_GOAL, seed, **more))
    (path / "latest").symlink_to("version_0")


def test_a_benchmark_is_read_as_it_is_described(bench):
    bench.experiment("authors", "table", table(), title="TOFU", note="tiny", paper=["tab:variance"])
    found = collect(bench.folder)
    (e,) = found.experiments
    assert (e.name, e.title, e.kind, e.note, e.ours) == ("authors", "TOFU", "table", "tiny", "ofmu")
    assert found.problems == []
    assert len(e.finished) == 36
    assert e.finished[0].words[:2] == ["fit", "--config"]
    part = e.part("forget05")
    values = part.values("npo", "forget_Q_A_Prob")
    file = bench.folder / "authors/forget05/npo/seed_2/latest/results.json"
    assert values["forget05", 2] == json.loads(file.read_text())["metrics"]["forget_Q_A_Prob"]["value"]
    assert list(part.values("retrained", "model_utility").values()) == [TEXT_GOAL["model_utility"]] * 3


def test_a_folder_of_ordinary_runs_is_one_experiment(tmp_path):
    run(tmp_path / "ofmu")
    run(tmp_path / "npo", method="NPO")
    write(tmp_path / "target/version_0/results.json", results(VALUES, {}, {}))
    (tmp_path / "target/latest").symlink_to("version_0")
    (tmp_path / "rmu/version_0").mkdir(parents=True)
    found = collect(tmp_path)
    (e,) = found.experiments
    assert list(e.methods) == ["npo", "ofmu"]
    assert e.ours == "ofmu"
    assert list(e.scenarios) == [tmp_path.name]
    (problem,) = found.problems
    assert " rmu/version_0 " in problem


@pytest.mark.parametrize(("latest", "shown"), [("version_0", ["npo", "ofmu"]), ("version_1", ["ofmu"])])
def test_a_newer_half_written_version_is_named(tmp_path, latest, shown):
    run(tmp_path / "ofmu")
    run(tmp_path / "npo", method="NPO")
    newer = tmp_path / "npo/version_1"
    newer.mkdir()
    os.utime(newer, (2e9, 2e9))
    (tmp_path / "npo/latest").unlink()
    (tmp_path / "npo/latest").symlink_to(latest)
    found = collect(tmp_path)
    (problem,) = found.problems
    assert "npo/version_1" in problem
    assert [r.method for r in found.experiments[0].finished] == shown


def test_runs_by_scenario_and_seed_are_found_without_a_manifest(tmp_path):
    for scenario in ("a", "b"):
        for seed in (0, 1):
            run(tmp_path / f"{scenario}/ofmu/seed_{seed}", seed)
            run(tmp_path / f"search/e/{scenario}/ofmu-0/seed_{seed}", seed)
    run(tmp_path / "a/of-search-lr", method="NPO")
    (e,) = collect(tmp_path).experiments
    found = {(r.scenario, r.method, r.seed) for r in e.finished}
    assert found == {(s, "ofmu", k) for s in "ab" for k in (0, 1)} | {("a", "of-search-lr", 0)}


@pytest.mark.parametrize(
    ("file", "content", "finished"),
    [
        *((NPO, content, 17) for content in ("{", "[1]", '{"metrics": {"UA": 1}, "before": {}}', "[" * 99999)),
        *(("benchmark.json", content, 18) for content in ("{", '{"experiments": 1}')),
    ],
)
def test_broken_files_are_named_and_left_out(bench, file, content, finished):
    bench.experiment("authors", "table", table(scenarios=ONE))
    (bench.folder / file).write_text(content)
    found = collect(bench.folder)
    assert len(found.experiments[0].finished) == finished
    assert any(str(bench.folder / file) in p for p in found.problems)


def test_a_broken_experiment_leaves_the_others(bench):
    bench.experiment("good", "table", table(scenarios=ONE))
    bench.experiments["bad"] = {"cells": 3}
    bench.experiments["../worse"] = dict(bench.experiments["good"])
    bench.save()
    found = collect(bench.folder)
    assert [e.name for e in found.experiments] == ["good"]
    assert [sum(f"'{name}'" in p for p in found.problems) for name in ("bad", "../worse")] == [1, 1]


@pytest.mark.parametrize(
    ("changes", "finished", "said"),
    [
        ({"folder": "../elsewhere"}, 17, "leads"),
        ({"seed": 1}, 17, "seed 1 "),
        ({"seed": 7}, 18, "seed 7"),
    ],
)
def test_a_cell_that_cannot_be_what_it_says_is_named(bench, changes, finished, said):
    bench.experiment("authors", "table", table(scenarios=ONE))
    bench.experiments["authors"]["cells"][0] |= changes
    bench.save()
    write(bench.folder.parent / "elsewhere/latest/results.json", results(VALUES, TEXT_BEFORE, TEXT_GOAL))
    found = collect(bench.folder)
    assert len(found.experiments[0].finished) == finished
    assert any(said in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"definition": "open_unlearning"}, "(17 runs)"),
        ({"provenance": table(scenarios=ONE)["forget05", "npo", 0]["provenance"] | {"seed": 1}}, "weights"),
    ],
)
def test_what_is_no_sample_of_its_own_or_of_another_definition_is_left_out(bench, changes, said):
    runs = table(scenarios=ONE)
    runs["forget05", "npo", 1] |= changes
    bench.experiment("authors", "table", runs)
    found = collect(bench.folder)
    (e,) = found.experiments
    assert len(e.finished) == 17
    assert list(e.values("npo", "model_utility")) == [("forget05", 0), ("forget05", 2)]
    assert said in found.problems[0]


def test_failed_unfinished_diverged_and_missing_numbers_are_named(bench):
    runs = table(scenarios=ONE)
    runs["forget05", "rmu", 1]["metrics"]["model_utility"]["value"] = None
    runs["forget05", "rmu", 2]["provenance"]["hashes"]["forget"] = "other"
    failed = [("forget05", "kl", k, "failed", f"KL diverged at {k}.") for k in (0, 1)]
    failed.append(("forget05", "kl", 2, "unfinished", None))
    bench.experiment("authors", "table", runs, failed, metrics=["model_utility", "nonsense"])
    found = collect(bench.folder)
    tokens = (
        "1 of 21",
        "seeds 0, 1: KL diverged at 0",
        "rmu/seed_1 has no finite model_utility",
        "seed_2 forgets",
        "nonsense",
    )
    for problem, token in zip(found.problems, tokens, strict=True):
        assert token in problem
    assert found.experiments[0].columns == ["model_utility"]
    assert len(found.experiments[0].values("rmu", "model_utility")) == 2


def test_numbers_too_large_for_a_float_are_missing(bench):
    runs = table(scenarios=ONE, methods={"ofmu": 0.0, "npo": 0.3})
    entry = runs["forget05", "npo", 1]["metrics"]["model_utility"]
    entry["value"] = entry["target"] = 10**400
    runs["forget05", "npo", 2]["metrics"]["model_utility"]["value"] = math.inf
    runs["forget05", "npo", 0]["cost"]["training_seconds"] = -(10**400)
    bench.experiment("authors", "table", runs, gradients=10**400)
    file = bench.folder / "authors/forget05/npo/seed_2/latest/results.json"
    file.write_text(file.read_text().replace("Infinity", "1e400"))
    found = collect(bench.folder)
    assert list(found.experiments[0].values("npo", "model_utility")) == [("forget05", 0)]
    assert sum("model_utility" in p for p in found.problems) == 2
    assert report(bench.folder).is_file()


@pytest.mark.parametrize(
    ("hashes", "said"),
    [({"forget": "other"}, "5 runs"), ({}, "which")],
)
def test_the_run_that_forgets_other_rows_is_blamed_wherever_it_stands(bench, hashes, said):
    """Also where it comes first: not those that agree with each other."""
    runs = table(scenarios=ONE)
    runs["forget05", "ofmu", 0]["provenance"]["hashes"] = hashes
    bench.experiment("authors", "table", runs)
    (problem,) = collect(bench.folder).problems
    assert re.search(f"authors/forget05/ofmu/seed_0 .*{said} ", problem)


def test_the_model_before_is_that_of_a_run_that_has_it(bench):
    runs = table(scenarios=ONE)
    runs["forget05", "ofmu", 0] |= {"reference": None, "before": None}
    bench.experiment("authors", "table", runs)
    (e,) = collect(bench.folder).experiments
    for side in ("before", "retrained"):
        assert len(e.values(side, "model_utility")) == 3


def test_foreign_folders_become_rows_of_text_experiments(bench, tmp_path, shared):
    bench.experiment("authors", "table", table(scenarios=ONE))
    images = table(images=True, methods={"ofmu": 0.0}, scenarios=("classwise",))
    bench.experiment("digits", "table", images, metrics=["UA", "forget_test_AUC"])
    theirs = shared / "reference/open-unlearning-tiny/full"
    only_eval = tmp_path / "only_eval"
    write(only_eval / "TOFU_EVAL.json", {"model_utility": {"agg_value": 0.25}, "forget_quality": {"agg_value": None}})
    found = collect(bench.folder, [theirs, only_eval, tmp_path / "nowhere"])
    text, pictures = found.experiments
    summary = json.loads((theirs / "TOFU_SUMMARY.json").read_text())
    log, goal = (
        json.loads((theirs.parent / name / "TOFU_EVAL.json").read_text())["forget_truth_ratio"]["value_by_index"]
        for name in ("full", "retain90")
    )
    items = [[entry["score"] for entry in side.values()] for side in (log, goal)]
    definition, values = text.foreign["full"]
    assert definition == "open_unlearning"
    assert values.items() >= summary.items()
    assert values["retain_Q_A_Prob"] == pytest.approx(0.84201, abs=1e-5)
    assert values["forget_quality_D"] == pytest.approx(ks_2samp(*items).statistic, abs=1e-12) == 0.415
    assert text.foreign["only_eval"] == ("open_unlearning", {"model_utility": 0.25})
    heads = [row[0].text for row in tables(pictures)[0].rows]
    assert heads == ["before", "retrained", "ofmu"], "they have no value of a column"
    assert [p for p in found.problems if "nowhere" in p]


def test_foreign_folders_of_one_name_are_told_apart_by_those_above(bench, tmp_path):
    """open-unlearning puts every task's numbers into a folder called evals."""
    bench.experiment("authors", "table", table(scenarios=ONE))
    folders = [tmp_path / task / "evals" for task in ("npo", "rmu")]
    for i, folder in enumerate(folders):
        write(folder / "TOFU_SUMMARY.json", {"model_utility": i / 4})
    (text,) = collect(bench.folder, [*folders, folders[0]]).experiments
    assert {name: values for name, (_, values) in text.foreign.items()} == {
        "npo/evals": {"model_utility": 0.0},
        "rmu/evals": {"model_utility": 0.25},
    }


def test_one_run_or_one_method_in_the_place_of_all_is_told_which_folder_to_give(tmp_path):
    run(tmp_path / "quickstart/ofmu")
    for folder in ("ofmu", "ofmu/latest"):
        with pytest.raises(UserError, match=r"/quickstart'\."):
            collect(tmp_path / "quickstart" / folder)
    assert collect(tmp_path / "quickstart").experiments


ODD = (None, 3, "x", [1], {"a": 1}, {"a": {"value": "x", "target": [1], "definition": [1]}})
FEWER = (ODD[0], ODD[3], ODD[-1])
"""They reach every line of the readers of analyses and manifests that all do."""


def shown(folder, *figures):
    """All that a report makes of it, with those figures that read what is odd."""
    found = collect(folder)
    for e in found.experiments:
        tables(e)
        claims(e)
        for draw in figures:
            draw(e, Look(list(e.methods), [e.ours]))
    return found


@pytest.mark.parametrize("key", "definition metrics before reference history provenance cost curves".split())
def test_results_of_another_shape_are_survived(bench, key):
    seeds = range(len(ODD) + 1)
    runs = table(scenarios=("a",), methods={"ofmu": 0.0, "npo": 0.5}, seeds=seeds)
    for seed, odd in zip(seeds, ODD, strict=False):
        runs["a", "npo", seed][key] = odd
    options = {m: {"options": {"model.inner_steps": t}} for m, t in (("ofmu", 1), ("npo", 5))}
    for kind in ("table", "convergence"):
        bench.experiment(
            kind, kind, runs, methods=options, paper=["tab:tofu-llama2-results"], metrics=["model_utility", "a"]
        )
    for e in shown(bench.folder).experiments:
        assert len(e.values("ofmu", "model_utility")) == len(seeds)


@pytest.mark.parametrize("key", ["draws", "spearman", "seeds", None])
def test_analyses_of_another_shape_are_survived(bench, key):
    kinds = [(kind, odd) for kind in ("udi", "alignment", "ablation") for odd in FEWER]
    runs = table(scenarios=("a",), methods={"ofmu": 0.0})
    for number, (kind, odd) in enumerate(kinds):
        bench.experiment(f"{kind}_{number}", kind, runs, metrics=["model_utility"])
        write(bench.folder / f"{kind}_{number}" / "analysis.json", odd if key is None else {key: odd})
    assert len(shown(bench.folder, studies.udi).experiments) == len(kinds)


@pytest.mark.parametrize("key", "title kind paper note metrics ours gradients scenarios methods cells".split())
def test_manifests_of_another_shape_are_survived(bench, key):
    runs = table(scenarios=("a",), methods={"ofmu": 0.0, "npo": 0.5}, seeds=(0, 1))
    for name in ("good", *map(repr, range(len(FEWER)))):
        bench.experiment(name, "table", runs, metrics=["model_utility"])
    for number, odd in enumerate(FEWER):
        bench.experiments[repr(number)][key] = odd
    bench.save()
    found = shown(bench.folder)
    assert len(found.experiments[0].finished) == 4


def test_what_is_declared_is_read_again_and_the_wrong_kind_is_left_out():
    for metric in [*DECLARED.values(), tofu_items.of_set(tofu_items.ROUGE, "probe_x_forget")]:
        assert declaration(metric.name, json.loads(json.dumps(metric.result(0.5, n=4).as_dict()))) == metric
    entry = {"value": 0.5, "unit": ["%"], "group": 3, "column": "first", "tested_as": {}, "family": None}
    assert declaration("novelty", entry) == Metric("novelty", higher_is_better=True)


def test_a_stranger_s_declaration_decides(bench):
    metric = Metric("novelty", higher_is_better=False, unit="nats", group="my own", column=0)
    runs = table(methods={"ofmu": 0.1, "npo": 0.3}, scenarios=("a",))
    for content in runs.values():
        content["metrics"]["novelty"] = metric.result(2.0, n=4).as_dict()
    bench.experiment("runs", "table", runs)
    (e,) = collect(bench.folder).experiments
    assert (e.metrics[0], e.label("novelty")) == ("novelty", "novelty (nats)")
    assert "novelty ↓" in tables(e)[0].head
