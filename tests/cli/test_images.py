"""Images through the real command line: originals made once, results, pictures, benchmark, bad input."""

from __future__ import annotations

import csv
import html
import json
from pathlib import Path

import pytest

from ofmu_pl.cli import main

ROOT = Path(__file__).parent.parent.parent
FAST = [
    *("--config", str(ROOT / "configs/digits.yaml"), "--original.epochs", "6", "--data.train_items", "600"),
    *("--trainer.max_steps", "4", "--trainer.enable_progress_bar", "false", "--model.network.width", "8"),
    *("--evaluation.every_n_steps", "2", "--evaluation.attack_samples", "100"),
    *("--checkpoint.every_n_train_steps", "2"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run: its log folder."""
    logs = tmp_path_factory.mktemp("logs")
    main(["fit", *FAST, "--logs", str(logs)])
    return logs / "digits/ofmu/version_0"


def test_a_run_leaves_results_and_pictures(run):
    results = json.loads((run / "results.json").read_text())
    assert results["before"]["UA"]["value"] < 30
    assert results["metrics"]["UA"]["target"] == results["reference"]["metrics"]["UA"]["value"]
    assert results["reference"]["metrics"]["avg_gap"]["value"] == 0
    assert results["reference"]["model"]["streams"] == ["retain"]
    assert results["reference"]["model"]["cost"]["gradient_evaluations"] > 0
    gaps = [abs(results["metrics"][k]["value"] - results["metrics"][k]["target"]) for k in ("UA", "RA", "TA", "MIA")]
    assert results["metrics"]["avg_gap"]["value"] == pytest.approx(sum(gaps) / 4)
    assert [h["step"] for h in results["history"]] == [2]
    assert set(results["history"][0]["metrics"]) == {"forget_accuracy", "RA", "VA"}
    assert results["provenance"]["forgotten"] == [0]
    assert results["provenance"]["bn_mode"] == "frozen"
    for name in ("metrics", "confidence", "confusion", "forgotten"):
        assert (run / f"{name}.png").stat().st_size > 10_000


def test_the_originals_are_made_once_and_a_run_goes_on_where_it_stopped(run, capsys, tmp_path):
    checkpoint = sorted((run / "checkpoints").glob("*.ckpt"))[0]
    main(["fit", *FAST, "--logs", str(tmp_path), "--trainer.max_steps", "6", "--ckpt_path", str(checkpoint)])
    assert "Training the original" not in capsys.readouterr().err
    before, after = (json.loads((f / "results.json").read_text()) for f in (run, tmp_path / "digits/ofmu/version_0"))
    assert before["before"] == after["before"]


def test_an_exported_model_is_measured_alike(run, tmp_path):
    words = ["--model.network.path", str(run / "model"), "--logs", str(tmp_path)]
    main(["validate", *FAST, *words])
    ours, theirs = (json.loads((f / "results.json").read_text()) for f in (tmp_path / "digits/ofmu/version_0", run))
    for name, result in theirs["metrics"].items():
        assert ours["metrics"][name]["value"] == pytest.approx(result["value"], abs=1e-6)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--data.forget_classes", "[12]"], "--data.forget_classes has 12"),
        (["--data.forget_classes", "null", "--data.forget_fraction", "0"], "--data.forget_fraction is 0"),
        (["--data.forget_classes", "null", "--data.forget_fraction", "1"], "--data.forget_fraction is 1"),
        (["--evaluation.attack_samples", "5000"], "set --evaluation.attack_samples"),
        (["--original", "null"], "There is no model that could forget"),
        (["--model.network.path", "MODEL", "--data.split_seed", "5"], "belongs to another full split"),
        (["--model.network.path", "MODEL", "--original", "null"], "The reference 'retrain' needs to know how"),
        (["--evaluation.reference", "MODEL"], "was not trained on the retain split"),
        (["--model.network.path", "nowhere"], "holds no readable model"),
        (["-c", str(ROOT / "configs/methods/rmu.yaml")], "RMU is for text, and 'digits' holds images"),
        (["-c", str(ROOT / "configs/methods/npo.yaml")], "NPO is for text, and 'digits' holds images"),
        (["--evaluation", "TextEvaluation"], "set --evaluation ImageEvaluation"),
    ],
)
def test_bad_input_is_one_sentence(run, tmp_path, capsys, words, expected):
    words = [str(run / "model") if w == "MODEL" else w for w in words]
    with pytest.raises(SystemExit) as stop:
        main(["fit", *FAST, "--logs", str(tmp_path), *words])
    assert stop.value.code == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ofmu_pl: error:")]
    assert len(lines) == 1
    assert expected in lines[0]


BENCHMARK = """
name: small
base: {root}/configs/digits.yaml
seeds: [0, 1]
gradients: 12
workers: 1
options:
  original.epochs: 4
  data.train_items: 600
  model.network.width: 8
  evaluation.attack_samples: 100
  evaluation.every_n_steps: null
  evaluation.pictures: false
  export.folder: null
scenarios:
  classwise: {{data.forget_classes: [0]}}
methods:
  do_nothing: {{overlay: {root}/configs/methods/do_nothing.yaml, budgeted: false}}
  grad_diff: {{overlay: {root}/configs/methods/grad_diff.yaml, search: {{model.optimizer.lr: [1.0e-3, 1.0e-12]}}}}
  hopeless: {{overlay: {root}/configs/methods/grad_ascent.yaml, options: {{model.optimizer.lr: 1.0e+9}}}}
"""


def test_a_benchmark_searches_runs_once_and_reports_failures(tmp_path, capfd):
    config = tmp_path / "small.yaml"
    config.write_text(BENCHMARK.format(root=ROOT))
    words = ["benchmark", "--config", str(config), "--logs", str(tmp_path)]
    main(words)
    folder = tmp_path / "small"
    rows = {r["method"]: r for r in csv.DictReader((folder / "report/tables/small-classwise-results.csv").open())}
    assert list(rows) == ["before", "retrained", "do_nothing", "grad_diff", "hopeless"]
    assert [rows[m]["UA (%) n"] for m in rows] == ["2", "2", "2", "2", ""]
    assert rows["hopeless"]["runs"] == "0 of 2: diverged"
    cells = json.loads((folder / "benchmark.json").read_text())["experiments"]["small"]["cells"]
    failures = {c["folder"]: c["error"] for c in cells if c["status"] == "failed"}
    assert set(failures) == {f"classwise/hopeless/seed_{s}" for s in (0, 1)}
    assert "diverged" in failures["classwise/hopeless/seed_0"]
    search = json.loads((folder / "search.json").read_text())["classwise/grad_diff"]
    assert search["choice"] == min(search["gaps"], key=search["gaps"].get) or float(search["choice"]) == 1e-3
    spent = json.loads((folder / "classwise/grad_diff/seed_0/latest/results.json").read_text())["cost"]
    assert 0 < spent["gradient_evaluations"] <= 12
    assert (folder / "report/figures/small-classwise-metrics.png").stat().st_size > 10_000
    assert failures["classwise/hopeless/seed_0"] in html.unescape((folder / "report/index.html").read_text())

    marks = {p: p.stat().st_mtime_ns for p in folder.rglob("cell.json")}
    (folder / "classwise/grad_diff/seed_1/cell.json").unlink()
    main(words)
    again = {p: p.stat().st_mtime_ns for p in folder.rglob("cell.json")}
    assert [p.parent.name for p in marks if marks[p] != again[p]] == ["seed_1"]
    assert not list((folder / "classwise/do_nothing/seed_0").glob("version_1"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seeds: [0, 1]", "seeds: [0, 0]", "must all differ"),
        ("seeds: [0, 1]", "seeds: [1000]", "must all differ"),
        ("  do_nothing:", "  nothing:", "have no 'do_nothing'"),
        ("grad_diff.yaml", "grad_dif.yaml", "does not exist"),
    ],
)
def test_bad_benchmarks_are_refused(tmp_path, capsys, old, new, expected):
    config = tmp_path / "bad.yaml"
    config.write_text(BENCHMARK.format(root=ROOT).replace(old, new))
    with pytest.raises(SystemExit) as stop:
        main(["benchmark", "--config", str(config), "--logs", str(tmp_path)])
    assert stop.value.code == 1
    assert expected in capsys.readouterr().err


def test_an_unknown_option_of_a_benchmark_is_one_line(tmp_path, capsys):
    config = tmp_path / "bad.yaml"
    config.write_text(BENCHMARK.format(root=ROOT) + "sedes: [1]\n")
    with pytest.raises(SystemExit) as stop:
        main(["benchmark", "--config", str(config)])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "sedes" in line
    assert "benchmark --help" in line
