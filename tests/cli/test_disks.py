"""Disks that fail, fill up, turn read-only or lose a folder: one sentence at every stage, and nothing half-written."""

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest

from ofmu_pl.cli import main
from ofmu_pl.training.record import RunRecord
from tests.cli.conftest import the_error

FAULTS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.ENOENT)


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


@pytest.mark.parametrize("code", FAULTS, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("module", "name", "after"),
    [
        (os, "fsync", 0),
        (os, "fsync", 12),
        (os, "replace", 0),
        (os, "replace", 3),
        (fcntl, "flock", 0),
        (fcntl, "flock", 2),
    ],
)
def test_a_run_says_in_one_sentence_that_its_disk_fails(refused, monkeypatch, module, name, after, code):
    calls = failing(monkeypatch, module, name, code, after)
    assert os.strerror(code) in refused("--export.folder", "hf")
    assert len(calls) > after


@pytest.mark.parametrize("step", [1, 2, 4])
@pytest.mark.parametrize("what", ["version_0", "."])
def test_a_run_says_that_its_folder_is_gone(refused, fit, monkeypatch, step, what):
    add = RunRecord.add

    def removed(self, number, values):
        if number == step:
            shutil.rmtree(fit.logs / "authors/ofmu" / what)
        add(self, number, values)

    monkeypatch.setattr(RunRecord, "add", removed)
    assert "is not there" in refused("--export.folder", "hf")


@pytest.mark.parametrize("code", FAULTS, ids=errno.errorcode.get)
@pytest.mark.parametrize("command", ["attack", "report", "purge"])
def test_other_commands_say_so_too(fit, models, tmp_path, monkeypatch, capsys, command, code):
    run = fit("--evaluation.samples", "full", "--export.folder", "hf", "--trainer.max_steps", "1")
    (run / "audit.html").write_text((run / "audit.html").read_text())
    words = {"attack": ["--attacks", "[Confidence]", "--runs", str(run)], "report": [str(run.parent.parent)]}
    capsys.readouterr()
    failing(monkeypatch, os, "fsync", code)
    with pytest.raises(SystemExit) as stop:
        main([command, *words.get(command, [str(run)])])
    assert stop.value.code == 1
    assert os.strerror(code) in the_error(capsys)
    assert not list(Path(tmp_path).rglob(".*.partial"))
