"""A run is one folder: interrupted anywhere it goes on there, finished it is left alone, and nobody else gets in."""

import errno
import json
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ofmu_pl.support.files import locked
from ofmu_pl.training.run_folders import begun
from tests.cli.conftest import lasting

LAST = ["--ckpt_path", "last"]
RESOLVED = {"trainer": {"max_steps": 4}, "export": {"folder": None}}


def read(folder):
    return json.loads((folder / "results.json").read_text())


def names(run):
    return sorted(p.name for p in run.parent.iterdir() if not p.name.startswith("."))


@pytest.fixture
def form(first_order):
    return first_order


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "logs/authors/ofmu"


@pytest.mark.parametrize("how", ["last", "no checkpoint is left"])
def test_the_line_again_on_a_finished_run(fit, capsys, how):
    run = fit(*LAST, "--trainer.max_steps", "2")
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*")}
    if how == "no checkpoint is left":
        for path in (run / "checkpoints").iterdir():
            path.unlink()
            del before[path]
        del before[run / "checkpoints"]
    capsys.readouterr()
    fit(*LAST, "--trainer.max_steps", "2")
    assert capsys.readouterr().out == f"finished: see {run}\n"
    with pytest.warns(UserWarning, match="`validate`") as warned:
        fit(*LAST, "--trainer.max_steps", "2", "--evaluation.max_new_tokens", "3")
    assert len(warned) == 1
    assert names(run) == ["latest", "version_0"]
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())


def test_a_finished_run_of_a_newer_version_is_not_gone_on_with(fit, refused):
    run = fit(*LAST, "--trainer.max_steps", "1")
    (run / "results.json").write_text(json.dumps({**read(run), "schema": 99}))
    assert "schema 99" in refused(*LAST, "--trainer.max_steps", "1")
    assert names(run) == ["latest", "version_0"]


def test_more_iterations_of_a_finished_run_are_another_run(fit):
    first = fit(*LAST, "--trainer.max_steps", "2")
    second = fit(*LAST, "--trainer.max_steps", "3")
    assert (first.name, second.name) == ("version_0", "version_1")
    assert read(first)["provenance"]["steps"] == 2
    assert read(second)["provenance"]["steps"] == 3
    assert (first.parent / "latest").resolve() == second


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device", "disk")


def full_at(step, then):
    """A disk that is full from an iteration on."""
    return lambda checkpoint, path: (full if checkpoint["global_step"] == step else then)(checkpoint, path)


STAGES = {
    "the last checkpoint": ("ofmu_pl.training.checkpoints.torch.save", full_at(2, torch.save)),
    "the export": ("ofmu_pl.training.export.save_model", full),
    "the evaluation": ("ofmu_pl.evaluation.text.cached_scores", full),
    "its files": ("ofmu_pl.evaluation.text.write_samples", full),
    "the results": ("ofmu_pl.support.records.reading.write_json", full),
}


@pytest.mark.parametrize(
    "stages", [["the last checkpoint", "the evaluation"], pytest.param([*STAGES], marks=pytest.mark.slow, id="all")]
)
def test_a_disk_that_is_full_at_every_stage_of_the_end(fit, refused, folder, monkeypatch, tmp_path, stages):
    options = ["--trainer.max_steps", "2", "--evaluation.every_n_steps", "1"]
    expected = lasting(read(shutil.move(fit(*options), tmp_path / "undisturbed")))
    (folder / "latest").unlink()
    run = folder / "version_0"
    for stage in stages:
        name, broken = STAGES[stage]
        with monkeypatch.context() as patch:
            patch.setattr(name, broken)
            assert "full:" in refused(*LAST, *options), stage
        assert names(run) == ["version_0"], "no folder more, and latest names those with results only"
        assert not (run / "results.json").exists()
        if stage == "the evaluation":
            assert (run / "hf/model.safetensors").is_file(), "the results are what is written last"
    assert fit(*LAST, *options) == run
    assert names(run) == ["latest", "version_0"]
    assert lasting(read(run)) == expected


def test_a_model_that_was_not_exported_is(fit):
    run = fit("--trainer.max_steps", "1", "--export.folder", "null")
    expected = lasting(read(run))
    assert fit(*LAST, "--trainer.max_steps", "1") == run
    assert (run / "hf/model.safetensors").is_file()
    assert lasting(read(run)) == expected


def test_a_run_that_stopped_by_itself_is_not_trained_further(fit, refused, monkeypatch, capsys):
    options = ["--model.stationarity_tol", "1e6"]
    with monkeypatch.context() as patch:
        patch.setattr("ofmu_pl.training.export.save_model", full)
        refused(*LAST, *options)
    run = fit(*LAST, *options)
    assert read(run)["provenance"]["steps"] == 1
    assert "The run ended since" in (run / "audit.html").read_text(), "though this process did not see why"
    capsys.readouterr()
    assert fit(*LAST, *options) == run
    assert capsys.readouterr().out == f"finished: see {run}\n"


def test_a_run_whose_time_was_over_is_evaluated(fit, refused, monkeypatch):
    options = ["--trainer.max_time", "00:00:00:01", "--trainer.max_steps", "100000"]
    with monkeypatch.context() as patch:
        patch.setattr("ofmu_pl.training.export.save_model", full)
        refused(*LAST, *options)
    run = fit(*LAST, *options)
    assert read(run)["provenance"]["steps"] >= 1
    assert (run / "hf/model.safetensors").is_file()


def test_a_run_without_an_iteration_has_not_succeeded(refused):
    assert "trainer.max_time" in refused("--trainer.max_time", "00:00:00:00")


TRACKER = '''
from lightning.pytorch.loggers import Logger


class Tracker(Logger):
    """Keeps everything elsewhere, as W&B and MLflow do; it may put files into save_dir."""

    name, version = "project", "abc123"
    sent = []

    def __init__(self, save_dir: str = ".", broken: bool = False, log_model: bool = False) -> None:
        super().__init__()
        self.folder, self.broken = save_dir, broken

    @property
    def save_dir(self):
        return self.folder

    def log_metrics(self, metrics, step=None):
        self.sent.append(metrics)

    def log_hyperparams(self, params, *args, **kwargs):
        if self.broken:
            raise ConnectionError("no key")
        self.sent.append(params)
'''


@pytest.fixture
def tracker(tmp_path, monkeypatch):
    """Options that name a logger as services have it, and what was sent to it."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/tracker.py").write_text(TRACKER)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    elsewhere = tmp_path / "elsewhere"
    yield ["--trust", "tracker", "--trainer.logger", "tracker.Tracker", "--trainer.logger.save_dir", str(elsewhere)]
    sys.modules.pop("tracker", None)
    assert not elsewhere.exists()


def test_a_runs_folder_is_the_same_whatever_loggers_stand_beside(fit, folder, tracker, tmp_path):
    steps = ["--trainer.max_steps", "2"]
    plain = fit(*steps)
    tracked, again = fit(*steps, *tracker), fit(*steps, *tracker)
    assert [run.parent for run in (plain, tracked, again)] == [folder.resolve()] * 3
    assert [run.name for run in (plain, tracked, again)] == ["version_0", "version_1", "version_2"]
    files = [sorted(p.name for p in run.iterdir() if "tfevents" not in p.name) for run in (plain, tracked, again)]
    assert files[0] == files[1] == files[2]
    table = ["--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", str(tmp_path / "csv")]
    longer = fit(*LAST, "--trainer.max_steps", "3", *table)
    assert longer.name == "version_3"
    assert read(longer)["provenance"]["steps"] == 3
    (written,) = (tmp_path / "csv").rglob("metrics.csv")
    assert len(written.read_text().splitlines()) >= 4, "the numbers of the earlier part, too"


def test_loggers_get_numbers_and_settings_and_no_rows(fit, tracker):
    rows = [{"question": f"Who lives in house {i}?", "answer": f"Falbro {i} does."} for i in range(8)]
    sides = {"forget": rows[:2], "retain": rows[2:5], "holdout": rows[5:]}
    options = [f"--data.{name}={json.dumps(side)}" for name, side in sides.items()]
    options += ["--model.stepper=AdamSteps", "--model.upper=Reach", "--model.upper.drop=0.001", "--model.upper.start=0"]
    fit("--data", "TextFiles", "--benchmark", "authors", *options, *tracker, "--trainer.max_steps", "2")
    sent = sys.modules["tracker"].Tracker.sent
    assert any("model.class_path" in x for x in sent)
    assert any("L_r" in x for x in sent)
    assert "Falbro" not in repr(sent)
    names = {name for numbers in sent for name in numbers if "model.class_path" not in numbers}
    folders = {name.rpartition("/")[0] for name in names}
    assert "reach" in names
    assert not names & folders, "MLflow writes a file for each name, and a folder for what lies before its slash"


@pytest.mark.parametrize(("option", "told"), [("broken", "no key"), ("log_model", "checkpoints")])
def test_a_logger_that_cannot_be_had_or_takes_checkpoints_away_is_refused(refused, folder, tracker, option, told):
    assert told in refused(*tracker, f"--trainer.logger.{option}", "true")
    assert not list(folder.glob("version_*"))


@pytest.mark.parametrize("option", ["--evaluation.reference", "--model.network.path"])
def test_a_run_that_fails_at_the_start_leaves_no_folder(refused, folder, option):
    refused(option, "no/such/folder")
    assert not list(folder.glob("version_*"))


def test_a_run_at_work_is_left_alone(fit, refused, folder):
    run = fit("--trainer.max_steps", "1", "--export.folder", "null")
    half = run / "checkpoints/.step=2.ckpt.123.partial"
    half.write_bytes(b"half")
    options = ["--trainer.max_steps", "1"]
    with locked(run / ".lock") as file:
        for words in (LAST, ["--ckpt_path", str(run / "checkpoints/step=1.ckpt")]):
            assert f"'{run}' (process " in refused(*words, *options)
        assert half.exists()
        measured = fit(*LAST, command="validate")
        assert measured.name == "version_1"
        assert half.exists()
        assert fit(*options).name == "version_2"
    assert file.closed
    assert fit("--ckpt_path", str(run / "checkpoints/step=1.ckpt"), *options).name == "version_2"
    assert not half.exists()
    assert (run / "hf").is_dir()


def test_what_was_killed_before_its_first_checkpoint_is_begun_again_in_its_folder(folder):
    folder.mkdir(parents=True)
    places = []
    for _ in range(2):
        with begun(folder, "fit", "last", RESOLVED) as start:
            (start.folder / "config.yaml").write_text("{}")
            places.append(start.folder)
    with begun(folder, "fit", None, RESOLVED) as start:
        places.append(start.folder)
    assert [p.name for p in places] == ["version_0", "version_0", "version_1"]


def test_a_folder_that_was_never_held_is_taken_and_one_of_another_program_is_not(folder):
    (folder / "version_0").mkdir(parents=True)  # killed between making and holding it
    with begun(folder, "fit", "last", RESOLVED) as start:
        assert start.folder.name == "version_0"
    (folder / "version_0/.lock").unlink()
    (folder / "version_0/hparams.yaml").write_text("{}")
    with begun(folder, "fit", "last", RESOLVED) as start:
        assert start.folder.name == "version_1"


def test_folders_are_never_shared(folder):
    def one(_):
        with begun(folder, "fit", None, RESOLVED) as start:
            barrier.wait(20)  # all of them are held at once
            return start.folder

    barrier = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(one, range(8)))) == 8
