"""The command itself on digits: killed in the middle, started again, with methods that fail."""

import contextlib
import csv
import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from ofmu_pl.benchmark.command import Stages
from ofmu_pl.benchmark.grid import Cell, Grid
from ofmu_pl.benchmark.manifest import Manifest
from ofmu_pl.benchmark.pool import Job, Pool
from ofmu_pl.benchmark.progress import Live
from ofmu_pl.benchmark.specs import Planned, SearchedMethod
from ofmu_pl.cli import main
from ofmu_pl.cli.configured import fit
from ofmu_pl.support.files import write_json
from ofmu_pl.support.kept import write_sums
from ofmu_pl.training.interrupts import orderly
from tests.helpers.process import killed_benchmark

ROOT = Path(__file__).parent.parent.parent
BENCHMARK = f"""
name: small
workers: 2
pieces:
  grid: &grid
    base: {ROOT}/configs/digits.yaml
    seeded: [seed_everything, data.split_seed]
    gradients: 12
    scenarios: {{classwise: {{data.forget_classes: [0]}}}}
    search_options: {{evaluation.reference: null}}
    options:
      original.epochs: 4
      data.train_items: 600
      model.network.width: 8
      evaluation.attack_samples: 100
      evaluation.every_n_steps: null
      export.folder: null
      checkpoint.save_top_k: 0
  methods: &methods
    do_nothing: {{overlay: {ROOT}/configs/methods/do_nothing.yaml, budgeted: false}}
    grad_diff: {{overlay: {ROOT}/configs/methods/grad_diff.yaml, search: {{model.optimizer.lr: [1.0e-3, 1.0e-12]}}}}
experiments:
  table:
    <<: *grid
    title: Some methods
    paper: [tab:cifar-combined]
    metrics: [UA]
    seeds: [0, 1]
    methods:
      <<: *methods
      hopeless: {{overlay: {ROOT}/configs/methods/grad_ascent.yaml, options: {{model.optimizer.lr: 1.0e+9}}}}
      lost: {{overlay: {ROOT}/configs/methods/grad_ascent.yaml, search: {{model.optimizer.lr: [1.0e+9, 1.0e+8]}}}}
      poor: {{options: {{model.inner_steps: 20}}}}
  again:
    <<: *grid
    title: Less
    kind: cost
    seeds: [1]
    settings_of: table/classwise
    methods: *methods
"""


def marks(folder):
    return {p.parent: p.stat().st_mtime_ns for p in folder.rglob("cell.json")}


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Of a benchmark that was killed once a candidate had finished, and then started again."""
    logs = tmp_path_factory.mktemp("logs")
    config = logs / "small.yaml"
    config.write_text(BENCHMARK)
    words = ["benchmark", "--config", str(config), "--logs", str(logs)]
    killed_benchmark(
        words, logs / "output.txt", lambda: list((logs / "small").glob("search/*/*/*-*/seed_1000/cell.json"))
    )
    time.sleep(1)  # its runs see that it is gone
    before = marks(logs / "small")
    assert not list((logs / "small/table").glob("*/grad_diff/seed_0/cell.json")), "nothing was interrupted"
    manifest = json.loads((logs / "small/benchmark.json").read_text())
    assert "unfinished" in {cell["status"] for cell in manifest["experiments"]["table"]["cells"]}
    time.sleep(1.5)
    assert marks(logs / "small") == before, "a run has outlived its benchmark"
    with (logs / "output.txt").open("a") as log, contextlib.redirect_stderr(log), contextlib.redirect_stdout(log):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 1, "some runs failed"
    after = marks(logs / "small")
    assert before.items() <= after.items(), "what had finished was run again"
    assert len(after) > len(before)
    return logs


@pytest.fixture
def manifest(logs):
    return json.loads((logs / "small/benchmark.json").read_text())


def cells_of(manifest, experiment):
    return {(c["method"], c["seed"]): c for c in manifest["experiments"][experiment]["cells"]}


def test_runs_go_seed_by_seed_within_a_scenario(tmp_path):
    """In the order asked for: seed 7 before seed 3, scenario b before a."""
    methods, scenarios = dict.fromkeys(("ofmu", "npo"), SearchedMethod()), {s: {"data.forget_seed": s} for s in "ba"}
    asked = {
        "e": Planned(title="E", base=f"{ROOT}/configs/digits.yaml", methods=methods, scenarios=scenarios, seeds=[7, 3])
    }
    found = Stages(tmp_path, Manifest("b", tmp_path, asked), Grid(asked), None, Live(1, tmp_path), fit)._reported({})
    assert list(found) == [
        ("e", *place) for s in "ba" for place in ((s, "ofmu", 7), (s, "npo", 7), (s, "ofmu", 3), (s, "npo", 3))
    ]


def test_finished_runs_hold_results(logs, manifest):
    for method in ("do_nothing", "grad_diff"):
        for seed in (0, 1):
            cell = cells_of(manifest, "table")[method, seed]
            assert (cell["status"], cell["error"]) == ("finished", None)
            folder = logs / "small" / cell["folder"]
            results = json.loads((folder / "latest/results.json").read_text())
            assert results["provenance"]["seed"] == results["provenance"]["split_seed"] == seed
            record = json.loads((folder / "cell.json").read_text())
            assert record["seconds"] > 0
            assert record["words"][0] == "fit"
    assert 0 < results["cost"]["gradient_evaluations"] <= 12


def test_failures_are_recorded_and_do_not_stop_the_rest(manifest, logs):
    cells = cells_of(manifest, "table")
    for method, token in (("hopeless", "diverged"), ("lost", "every candidate"), ("poor", "budget")):
        for seed in (0, 1):
            assert cells[method, seed]["status"] == "failed"
            assert token in cells[method, seed]["error"]
            assert "\n" not in cells[method, seed]["error"]
    assert "Failed: table/classwise/hopeless/seed_0: " in (logs / "output.txt").read_text()


def test_the_setting_is_chosen_by_validation(manifest):
    searched = manifest["experiments"]["table"]["methods"]["grad_diff"]["searched"]["classwise"]
    scores = searched["scores"]
    assert set(scores) == {"0.001", "1e-12"}
    assert searched["choice"] == float(max(scores, key=scores.get))
    assert scores["0.001"] != scores["1e-12"]
    theirs = manifest["experiments"]["again"]["methods"]["grad_diff"]["searched"]["classwise"]
    assert theirs == {**searched, "of": "table/classwise"}
    lost = manifest["experiments"]["table"]["methods"]["lost"]["searched"]["classwise"]
    assert lost == {"choice": None, "scores": {"1000000000.0": None, "100000000.0": None}}


def test_experiments_share_runs(manifest, logs):
    for method in ("do_nothing", "grad_diff"):
        assert cells_of(manifest, "again")[method, 1]["folder"] == f"table/classwise/{method}/seed_1"
    assert not (logs / "small/again").exists()


def test_a_start_without_work_runs_only_what_failed_and_may_be_mended(logs, capfd):
    folder = logs / "small"
    before = marks(folder)
    diverged = {p: p.stat().st_mtime_ns for p in folder.rglob("failed.json") if "poor" not in str(p)}
    (folder / "table/classwise/grad_diff/seed_1/cell.json").unlink()
    with pytest.raises(SystemExit) as stop:
        main(["benchmark", "--config", str(logs / "small.yaml"), "--logs", str(logs)])
    assert stop.value.code == 1
    after = marks(folder)
    assert [p.name for p in before if before[p] != after[p]] == ["seed_1"]
    assert {p: p.stat().st_mtime_ns for p in diverged} == diverged, "a divergence would only come again"
    assert len(list((folder / "table/classwise/grad_diff/seed_1").glob("version_*"))) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("[")]
    assert "table/classwise/grad_diff/seed_1, " in line


def test_a_run_that_is_killed_fails_alone(tmp_path):
    ended = {}
    warned = partial(exec, "print('ofmu_pl: warning: of something else'); raise RuntimeError('shapes')")
    calls = {"killed": os.abort, "fine": os.getpid, "warned": warned}
    jobs = [Job(tmp_path / name, name, call) for name, call in calls.items()]
    Pool(1, Live(1, tmp_path)).run(jobs, lambda job, sentence, fresh: ended.update({job.key: sentence}))
    assert ended["fine"] is None
    assert " -6 " in ended["killed"]
    assert ended["warned"] == "RuntimeError: shapes", "a warning is not why it failed"


@pytest.mark.parametrize(("later", "option"), [(True, "--data.forget"), (False, "--data.forget"), (True, "--config")])
def test_a_finished_run_whose_file_was_written_later_is_named(tmp_path, recwarn, later, option):
    rows, words = tmp_path / "jane.jsonl", ["fit", f"{option}={tmp_path / 'jane.jsonl'}", f"--logs={tmp_path}"]
    rows.touch()
    job = Job(tmp_path / "run", "key", os.getpid, words)
    write_json(job.place / "cell.json", {"key": "key", "words": words, "seconds": 1.0})
    os.utime(rows, (time.time() + 60,) * 2 if later else (0, 0))
    Pool(1, Live(1, tmp_path)).run([job], lambda *_: None)
    assert len(recwarn) == (later and option != "--config")


def test_a_finished_run_whose_model_was_written_later_is_named(tmp_path, recwarn):
    model, place = tmp_path / "target/hf", tmp_path / "run"
    for folder in (model, place / "latest"):
        folder.mkdir(parents=True)
    (place / "latest/config.yaml").write_text(f"model: {{init_args: {{network: {{path: '{model}'}}}}}}\n")
    write_json(place / "cell.json", {"key": "key", "words": [], "seconds": 1.0})
    (model / "model.safetensors").touch()
    os.utime(model / "model.safetensors", (time.time() + 60,) * 2)
    Pool(1, Live(1, tmp_path)).run([Job(place, "key", os.getpid)], lambda *_: None)
    assert str(model) in str(recwarn[0].message)


def results_in(place):
    (place / "latest").mkdir(parents=True)
    (place / "latest/results.json").write_text("{}")


def test_a_run_without_results_has_not_finished(tmp_path):
    """Neither now, nor by the record that an older version left when its process was told to end."""
    ended = {}
    calls = {"made": partial(results_in, tmp_path / "made"), "ended early": os.getpid, "older": os.getpid}
    jobs = [Job(tmp_path / name, name, call, result="latest/results.json") for name, call in calls.items()]
    (tmp_path / "older").mkdir()
    (tmp_path / "older/cell.json").write_text(json.dumps({"key": "older", "words": [], "seconds": 1.0}))
    Pool(1, Live(1, tmp_path)).run(jobs, lambda job, sentence, fresh: ended.update({job.key: (sentence, fresh)}))
    assert ended.pop("made") == (None, True)
    for name, (sentence, fresh) in ended.items():
        assert "latest/results.json" in sentence
        assert fresh
        assert not (tmp_path / name / "cell.json").exists()
    results_in(tmp_path / "older")
    assert jobs[2].record is None, "it is run once more, not taken for finished"


@pytest.mark.parametrize(
    ("harm", "warnings"),
    [(lambda path: path.write_bytes(b"Weights"), 1), (Path.unlink, 1), (lambda path: shutil.rmtree(path.parent), 0)],
)
def test_a_prepared_model_that_is_damaged_or_gone_is_made_anew(tmp_path, recwarn, harm, warnings):
    weights = tmp_path / "prepared/table/target/once/latest/hf/model.safetensors"
    made = []

    def make(jobs, _):
        for job in jobs:
            if job.record is None:
                weights.parent.mkdir(parents=True, exist_ok=True)
                weights.write_bytes(b"weights")
                write_sums(weights.parent)
                write_json(job.place / "latest/results.json", {})
                write_json(job.place / "cell.json", {"key": job.key, "words": [], "seconds": 1.0})
                made.append(job.place)

    def start():
        manifest = SimpleNamespace(write=lambda: None, made=lambda *_: None)
        run = Stages(tmp_path, manifest, Grid({}), SimpleNamespace(run=make), None, fit)
        run._cells([Cell("prepared/table/target/once", (), {}, {})])

    start()
    start()
    assert len(made) == 1
    harm(weights)
    start()
    start()
    assert (len(recwarn), len(made)) == (warnings, 2)
    assert all("model.safetensors" in str(said.message) for said in recwarn)


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_benchmark_that_is_told_to_end_takes_its_runs_along(tmp_path, told):
    """A terminal tells the runs of Ctrl-C, too; that is no failure of theirs."""
    job = Job(tmp_path / "run", "key", partial(time.sleep, 60))

    def tell():
        while not (tmp_path / "run/log.txt").is_file():
            time.sleep(0.01)
        if told == signal.SIGINT:
            os.kill(multiprocessing.active_children()[0].pid, told)
            time.sleep(0.3)
        os.kill(os.getpid(), told)

    thread = threading.Thread(target=tell)
    thread.start()
    with pytest.raises(SystemExit) as stop, orderly(["benchmark"]):
        Pool(1, Live(1, tmp_path)).run([job], lambda *_: None)
    thread.join()
    assert stop.value.code == 128 + told
    assert not multiprocessing.active_children()
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"log.txt", "begun.json"}, "no record of a failure"


def test_the_report_shows_what_ran_and_what_failed(logs):
    report = logs / "small/report"
    rows = {r["method"]: r for r in csv.DictReader((report / "tables/table-classwise-results.csv").open())}
    assert list(rows) == ["before", "retrained", "do_nothing", "grad_diff", "hopeless", "lost", "poor"]
    assert [rows[m]["UA (%) n"] for m in rows] == ["2", "2", "2", "2", "", "", ""]
    assert rows["hopeless"]["runs"] == "0 of 2: diverged"


@pytest.mark.parametrize(
    ("old", "new", "code", "token"),
    [
        ("seeds: [0, 1]", "sedes: [0, 1]", 2, "sedes"),
        ("seeds: [0, 1]", "seeds: [0, 0]", 1, "seeds"),
        ("workers: 2", "workers: 0", 1, "workers"),
        ("", "", 1, "Another"),
    ],
)
def test_bad_input_and_two_at_once_are_refused(tmp_path, capsys, old, new, code, token):
    config = tmp_path / "bad.yaml"
    config.write_text(BENCHMARK.replace(old, new))
    (tmp_path / "small").mkdir()
    with (tmp_path / "small/.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if old == new else fcntl.LOCK_UN)
        with pytest.raises(SystemExit) as stop:
            main(["benchmark", "--config", str(config), "--logs", str(tmp_path)])
    assert stop.value.code == code
    assert token in capsys.readouterr().err
