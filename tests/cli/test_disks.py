"""Disks that fail, fill up, turn read-only or lose a folder: one sentence at every stage, and nothing half-written."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ofmu_pl.cli import main
from ofmu_pl.training.record import RunRecord
from tests.cli.conftest import TINY, the_error

FAULTS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.ENOENT)


@pytest.fixture
def form(first_order):
    return first_order


def failing(monkeypatch, module, name, code, after=0):
    """Let a function of the system's fail from some call on, as the disk would."""
    whole, calls = getattr(module, name), []

    def fails(*arguments, **more):
        calls.append(arguments)
        if len(calls) > after:
            raise OSError(code, os.strerror(code), str(arguments[0]) if name == "replace" else None)
        return whole(*arguments, **more)

    monkeypatch.setattr(module, name, fails)
    return calls


CALLS = {
    "sync": (os, "fsync", 0),
    "later sync": (os, "fsync", 12),
    "rename": (os, "replace", 0),
    "later rename": (os, "replace", 3),
    "lock": (fcntl, "flock", 0),
    "later lock": (fcntl, "flock", 2),
}


def cases(places):
    """Every place with every fault; one of each place is not slow."""
    for i, place in enumerate(places):
        for k, code in enumerate(FAULTS):
            marks = () if k == i % len(FAULTS) else pytest.mark.slow
            yield pytest.param(place, code, marks=marks, id=f"{place}-{errno.errorcode[code]}")


@pytest.mark.parametrize(("call", "code"), list(cases(CALLS)))
def test_a_run_says_in_one_sentence_that_its_disk_fails(refused, monkeypatch, call, code):
    module, name, after = CALLS[call]
    calls = failing(monkeypatch, module, name, code, after)
    assert os.strerror(code) in refused("--export.folder", "hf", "--trainer.max_steps", "2")
    assert len(calls) > after


@pytest.mark.parametrize("step", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["version_0", "."])
def test_a_run_says_that_its_folder_is_gone(refused, fit, monkeypatch, step, what):
    add = RunRecord.add

    def removed(self, number, values):
        if number == step:
            shutil.rmtree(fit.logs / "authors/ofmu" / what)
        add(self, number, values)

    monkeypatch.setattr(RunRecord, "add", removed)
    assert str(fit.logs / "authors/ofmu") in refused("--export.folder", "hf")


@pytest.fixture(scope="module")
def logs(models, tmp_path_factory):
    """With a run of GradDiff."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "c.yaml").write_text(TINY.format(method="GradDiff", extra="", steps=1))
    words = ["--model.network.path", str(models / "target/latest/hf"), "--logs", str(folder / "logs")]
    main(["fit", "--config", str(folder / "c.yaml"), *words, "--evaluation.samples", "full", "--export.folder", "hf"])
    return folder / "logs"


@pytest.mark.parametrize(("command", "code"), list(cases(["attack", "report", "purge"])))
def test_other_commands_say_so_too(logs, tmp_path, monkeypatch, capsys, command, code):
    run = shutil.copytree(logs, tmp_path / "logs", symlinks=True) / "authors/graddiff/version_0"
    (run / "audit.html").write_text((run / "audit.html").read_text())
    words = {"attack": ["--attacks", "[Confidence]", "--runs", str(run)], "report": [str(run.parent.parent)]}
    capsys.readouterr()
    failing(monkeypatch, os, "fsync", code)
    with pytest.raises(SystemExit) as stop:
        main([command, *words.get(command, [str(run)])])
    assert stop.value.code == 1
    assert os.strerror(code) in the_error(capsys)
    assert not list(Path(tmp_path).rglob(".*.partial"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_an_output_that_is_full_is_named():
    command = [sys.executable, "-m", "ofmu_pl", "configs"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "The output " in done.stderr
