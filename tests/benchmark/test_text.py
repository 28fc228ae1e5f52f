"""Models prepared for runs, and compared after them: text, from nothing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ofmu_pl.benchmark.command import benchmark
from ofmu_pl.benchmark.comparison import Comparisons, difficulty_and_drop
from ofmu_pl.benchmark.specs import Planned, Prepare, SearchedMethod
from ofmu_pl.cli.configured import fit
from ofmu_pl.support.errors import UserError
from tests.helpers.process import start_server
from tests.helpers.training import TINY

ROOT = Path(__file__).parent.parent.parent
CONFIGS = ROOT / "configs"
SMALL = {"model.scheduler": None, "data.authors": 12, "evaluation.max_new_tokens": 1, "checkpoint.save_top_k": 0}
NETWORK = TINY | {"tie_word_embeddings": True, "max_position_embeddings": 512}
TRAINING = SMALL | {"model.network.config": NETWORK, "trainer.max_steps": 4, "data.forget_authors": 1}
TARGET = str(CONFIGS / "tiny/target.yaml")
DRAWS = {f"draw_{i}": {"data.forget_authors": 1, "data.forget_seed": i} for i in range(3)}
GRID = {
    "base": str(CONFIGS / "authors.yaml"),
    "methods": {
        "npo": SearchedMethod(str(CONFIGS / "methods/npo.yaml"), search={"model.optimizer.lr": [1e-3, 1e-2]}),
        "hopeless": SearchedMethod(str(CONFIGS / "methods/grad_ascent.yaml"), {"model.optimizer.lr": 1e9}),
    },
    "prepare": {
        "target": Prepare(TARGET, "model.network.path", TRAINING | {"data.forget_seed": 0}, ["seed"]),
        "retrained": Prepare(TARGET, "evaluation.reference", TRAINING | {"model.split": "retain"}),
    },
    "options": SMALL
    | {"data.batch_size": 8, "evaluation.every_n_steps": None, "export.folder": "hf", "trainer.accelerator": "cpu"},
    "search_options": {"evaluation.reference": None, "export.folder": None},
    "gradients": 4,
    "settings_of": "udi/draw_0",
}
EXPERIMENTS = {
    "udi": Planned(title="Draws", kind="udi", scenarios=DRAWS, **GRID),
    "alignment": Planned(title="Embeddings", kind="alignment", scenarios={"small": DRAWS["draw_1"]}, **GRID),
}
ATTACKS = """
attacks:
  - class_path: Relearn
    init_args: {source: retain, steps: 2, every: 2, rates: [1.0e-3]}
"""


def run(logs):
    """Beside the comparisons attacks, in the second experiment."""
    (logs / "attacks.yaml").write_text(ATTACKS)
    attacked = replace(EXPERIMENTS["alignment"], attacks=str(logs / "attacks.yaml"))
    with pytest.raises(UserError, match="^3 "):
        benchmark("text", EXPERIMENTS | {"alignment": attacked}, workers=2, logs=logs, fit=fit)
    return logs / "text"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    start_server()
    return run(tmp_path_factory.mktemp("logs"))


def read(path):
    return json.loads(path.read_text())


def test_runs_find_their_models(folder):
    results = read(folder / "udi/draw_1/npo/seed_0/latest/results.json")
    assert results["reference"]["source"] == f"{folder}/prepared/udi/retrained/draw_1/seed_0/latest/hf"
    assert sorted(p.name for p in (folder / "prepared/udi/target").iterdir()) == ["seed_0", "seed_1000"]
    assert not (folder / "prepared/alignment").exists(), "another experiment has made them"
    prepare = read(folder / "benchmark.json")["experiments"]["alignment"]["prepare"]
    assert [m["folder"] for m in prepare["target"]["made"]] == ["prepared/udi/target/seed_0"], "another's"
    for made in prepare["target"]["made"]:
        assert made["status"] == "finished"
        assert made["seconds"] == read(folder / made["folder"] / "cell.json")["seconds"]
    candidate = folder / "search/udi/draw_0/npo-0/seed_1000/latest"
    assert set(read(candidate / "validation.json")) == {"forget", "retain"}
    assert read(candidate / "results.json")["reference"] is None
    assert [p.name for p in (folder / "search/udi").iterdir()] == ["draw_0"], "searched in one draw, for all"


def test_difficulty_and_drop_of_each_draw(folder):
    found = read(folder / "udi/analysis.json")
    assert [draw["scenario"] for draw in found["draws"]] == list(DRAWS)
    for draw in found["draws"]:
        results = read(folder / "udi" / draw["scenario"] / "npo/seed_0/latest/results.json")
        drop = results["before"]["model_utility"]["value"] - results["metrics"]["model_utility"]["value"]
        assert draw["utility_drop"] == {"npo": pytest.approx(drop)}, "the method that diverged has none"
    assert len({draw["udi_mean"] for draw in found["draws"]}) == 3
    assert {method: x["n"] for method, x in found["spearman"].items()} == {"npo": 3}


def test_alignment_by_seed(folder):
    (seed,) = read(folder / "alignment/analysis.json")["seeds"].items()
    assert seed[0] == "0"
    assert set(seed[1]["hardest"]["cosine"]) == {"target", "npo"}
    assert seed[1]["n"] == 8
    cells = read(folder / "benchmark.json")["experiments"]["alignment"]["cells"]
    assert [c["folder"] for c in cells] == ["udi/draw_1/npo/seed_0", "udi/draw_1/hopeless/seed_0"]
    assert [c["status"] for c in cells] == ["finished", "failed"]


def test_each_finished_run_is_attacked(folder):
    (job,) = (folder / "attacks").rglob("cell.json")
    assert job.parent == folder / "attacks/alignment/small/npo/seed_0", "the method that diverged left no model"
    run = folder / "udi/draw_1/npo/seed_0/latest"
    assert read(job)["words"] == ["attack", f"--config={folder.parent}/attacks.yaml", "--runs", str(run)]
    found = read(run / "attacks.json")
    assert set(found["models"]) == {"unlearned", "retrained", "target"}
    assert found["attacks"]["relearn_retain"]["x"] == [0, 2]
    assert not (folder / "udi/draw_0/npo/seed_0/latest/attacks.json").exists(), "its experiment has no attacks"
    assert "npo" in (folder / "report/tables/alignment-small-attacks.csv").read_text()


def test_comparisons_and_attacks_are_made_once(folder):
    before = {p: p.stat().st_mtime_ns for place in ("analysis", "attacks") for p in (folder / place).rglob("cell.json")}
    assert len(before) == 5
    run(folder.parent)
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_what_cannot_be_compared_is_refused(tmp_path):
    grid = {**GRID, "options": {k: v for k, v in GRID["options"].items() if k != "export.folder"}}
    for bad in (grid, {**GRID, "prepare": {}}):
        with pytest.raises(UserError, match="export.folder: hf"):
            Comparisons(tmp_path, {"udi": Planned(title="Draws", kind="udi", **bad)})


def test_a_correlation_needs_three_draws_and_drops_that_exist():
    draws = [{"udi_mean": i, "utility_drop": {"a": i / 10, "b": None if i else 0.1}} for i in range(4)]
    assert {method: x["rho"] for method, x in difficulty_and_drop(draws).spearman.items()} == {"a": 1}
    assert difficulty_and_drop(draws[:2]).spearman == {}
