"""The list of scripts/gpu.py: limits hold, a failure stops nothing, and the page follows from what is stored."""

import argparse
import importlib
import json
import sys
from pathlib import Path

import psutil
import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
TELLS = """
import json, pathlib, subprocess, sys, time
other = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(json.dumps({"child": other.pid}))
"""
CODE = {
    "x.hangs": TELLS + "time.sleep(600)",
    "x.fails": "raise ValueError('no such device')",
    "y.works": "import json, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(json.dumps({'answer': 42}))",
    "y.long": "raise AssertionError('its limit is longer than the call')",
}


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    found = importlib.import_module("gpu")
    limits = {"x.hangs": 3, "x.fails": 20, "y.works": 20, "y.long": 200}
    parts = {name: found.Part(limit, lambda place: None, f"what {name}") for name, limit in limits.items()}
    monkeypatch.setattr(found, "PARTS", parts)
    return found


def call(gpu, folder, only=(), known=None):
    """A call of 60 seconds; which parts it started, and what is in its files."""
    started, done = [], known or {}

    def command(name):
        started.append(name)
        return [sys.executable, "-c", CODE[name], str(folder / f"work/told/{name}.json")]

    args = argparse.Namespace(seconds=60, rehearse=False, only=list(only), out=folder / "out")
    gpu.work_through(gpu.chosen(list(only)), done, args, folder / "work", command)
    return started, gpu.read(folder / "out")


def ended(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_part_that_hangs_or_fails_is_ended_and_the_others_go_on(gpu, tmp_path, capsys):
    started, found = call(gpu, tmp_path)
    assert started == ["x.hangs", "x.fails", "y.works"]
    assert {name: record["outcome"] for name, record in found.items()} == {
        "x.hangs": "ended at its limit",
        "x.fails": "failed",
        "y.works": "done",
    }
    assert ended(found["x.hangs"]["figures"]["child"]), "what it had started is ended, too"
    assert "no such device" in found["x.fails"]["error"]
    assert found["y.works"]["figures"] == {"answer": 42}
    assert "waits" in capsys.readouterr().out
    assert gpu.read(tmp_path / "work/results") == found


def test_what_is_done_is_not_run_again(gpu, tmp_path):
    _, found = call(gpu, tmp_path, ["y.works"])
    started, _ = call(gpu, tmp_path, ["y"], known=found)
    assert started == []


def test_an_unknown_part_is_refused(gpu):
    with pytest.raises(SystemExit, match="z"):
        gpu.chosen(["z"])


def test_the_page_follows_from_what_is_stored(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    records = importlib.import_module("gpu_records")
    page = (records.RESULTS / "hardware.md").read_text(encoding="utf-8")
    assert page.endswith(records.page(records.read(records.STORED)))


def test_a_failure_stands_on_the_page_with_its_cause(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    records = importlib.import_module("gpu_records")
    about = {"date": "2026-12-01", "device": "NVIDIA H200", "versions": {"torch": "2.11"}, "seconds": 3.0}
    failed = {"outcome": "done", "figures": {"failed": 1, "failures": {"tests/a.py::test_b": "assert 1 < *0*"}}}
    plan = {"outcome": "done", "figures": {"b.ofmu": {"plan GB": 12.3456}}}
    page = records.page({"a.devices": about | failed, "plan.b": about | plan})
    assert r"- `tests/a.py::test_b`: assert 1 \< \*0\*" in page
    assert "not run on a GPU; plan GB 12.3" in page
    assert "NVIDIA H200" in page


def test_a_rehearsal_is_no_result(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(SCRIPTS)
    records = importlib.import_module("gpu_records")
    (tmp_path / "b.json").write_text(json.dumps({"b.ofmu": {"rehearsal": True, "figures": {}}}))
    with pytest.raises(SystemExit, match="rehearsal"):
        records.publish(tmp_path)
