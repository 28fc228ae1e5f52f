"""A run interrupted at any moment goes on as if it had not been; a checkpoint that is not sound is refused."""

import json
import multiprocessing
import random
import shutil
import signal
import time

import pytest
import torch
from cli.conftest import TINY
from cli.process import run

from ofmu_pl.checkpoints import newest

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["cli.process"])  # so that a process starts in a moment


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def start(models, folder):
    """Starts ``fit --ckpt_path last`` under a folder of logs; returns the process."""
    config = folder / "ofmu.yaml"
    config.write_text(TINY.format(method="OFMU", extra="inner_steps: 2", steps=24))

    def process(logs):
        words = ["fit", "--config", str(config), "--logs", str(folder / logs), "--ckpt_path", "last"]
        words += ["--model.network.path", str(models / "target/latest/hf"), "--evaluation.max_new_tokens", "1"]
        process = CONTEXT.Process(target=run, args=(words, folder / f"{logs}.txt"))
        process.start()
        return process

    yield process
    for child in multiprocessing.active_children():
        child.kill()


@pytest.fixture(scope="module")
def whole(start, folder):
    """The last checkpoint of a run that nobody disturbed, its seconds, and those to its first checkpoint."""
    process, began = start("whole"), time.monotonic()
    wait_for(lambda: steps(folder / "whole") > 0)
    to_first = time.monotonic() - began
    process.join(120)
    return state(folder / "whole", 24), time.monotonic() - began, to_first


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


def partial(folder):
    return lambda: any(folder.glob("authors/ofmu/version_*/checkpoints/.*.partial"))


def steps(folder):
    return max((int(p.stem.split("=")[1]) for p in folder.rglob("*.ckpt")), default=0)


def state(folder, step):
    (path,) = (p for p in sorted(folder.rglob(f"step={step}.ckpt"))[-1:])
    return torch.load(path, weights_only=True)


def assert_same(a, b):
    assert all(torch.equal(a["state_dict"][k], b["state_dict"][k]) for k in b["state_dict"])
    assert a["ofmu"] == b["ofmu"]
    moments = [checkpoint["optimizer_states"][0]["state"] for checkpoint in (a, b)]
    assert all(torch.equal(x, moments[1][i][k]) for i, s in moments[0].items() for k, x in s.items())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("times", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(start, whole, folder, times):
    expected, duration, to_first = whole
    killed, name, draw = 0, f"killed-{times}", random.Random(times)
    logs = folder / name
    while killed < times:
        process = start(name)
        if killed % 3 == 2:  # while a checkpoint is being written
            wait_for(lambda alive=process.is_alive: partial(logs)() or not alive())
        else:  # from before the first iteration of this process to a few later
            process.join(draw.uniform(0.3, 1.0) * to_first + draw.uniform(0, 0.1) * (duration - to_first))
        if not process.is_alive():
            break
        process.kill()
        process.join()
        killed += 1
    assert killed == times, "the run ended before it was killed often enough"
    last = start(name)
    last.join(120)
    assert last.exitcode == 0, (folder / f"{name}.txt").read_text()[-2000:]
    assert_same(state(logs, 24), expected)
    for path in logs.rglob("*.ckpt"):
        assert torch.load(path, weights_only=True)["global_step"] == int(path.stem.split("=")[1])
    for path in logs.rglob("*.json"):
        json.loads(path.read_text())
    assert not partial(logs)()


def test_sigterm_writes_a_checkpoint_and_exits(start, whole, folder):
    process, logs = start("asked"), folder / "asked"
    wait_for(lambda: steps(logs) >= 3)
    process.terminate()
    process.join(60)
    assert process.exitcode == 128 + signal.SIGTERM
    said = (folder / "asked.txt").read_text()
    stopped = steps(logs)
    assert f"stopped by SIGTERM after iteration {stopped}" in said
    assert "Traceback" not in said
    again = start("asked")
    again.join(120)
    assert again.exitcode == 0
    assert_same(state(logs, 24), whole[0])


@pytest.fixture
def resume(fit, capsys):
    """Goes on from a checkpoint after something was done to it; returns the one sentence."""
    first = fit("--trainer.max_steps", "2")

    def attempt(change=lambda path: path, *options):
        path = change(first / "checkpoints/step=2.ckpt")
        with pytest.raises(SystemExit) as stop:
            fit("--ckpt_path", str(path), *options)
        assert stop.value.code == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ofmu_pl: error: ")]
        return line

    attempt.folder = first
    return attempt


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1000])
    return path


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (truncate, "is truncated or no checkpoint"),
        (flip_a_bit, "does not match its checksum"),
        (lambda path: path.with_name("step=9.ckpt"), "step=9.ckpt' does not exist"),
    ],
)
def test_a_checkpoint_that_is_not_sound(resume, change, said):
    line = resume(change)
    assert said in line
    assert "--ckpt_path last" in line


def test_last_passes_over_what_is_not_sound(resume):
    checkpoints = resume.folder / "checkpoints"
    (checkpoints / ".step=3.ckpt.123.partial").write_bytes(b"half")
    shutil.copy(checkpoints / "step=2.ckpt", checkpoints / "step=3.ckpt")
    truncate(checkpoints / "step=3.ckpt")
    with pytest.warns(UserWarning, match=r"step=3.ckpt' is truncated .* passed over"):
        assert newest(resume.folder.parent) == checkpoints / "step=2.ckpt"
    assert sorted(p.name for p in checkpoints.iterdir()) == ["step=1.ckpt", "step=2.ckpt", "step=3.ckpt"]


def test_a_checkpoint_of_other_settings(resume, fit):
    line = resume(lambda path: path, "--model.inner_lr", "0.5", "--model.optimizer", "torch.optim.SGD")
    assert "of a run with other settings (model.init_args.inner_lr was 0.02, is 0.5; " in line
    same = ["--model.micro_batch_size", "2", "--evaluation.max_new_tokens", "1", "--trainer.max_steps", "3"]
    assert fit("--ckpt_path", str(resume.folder / "checkpoints/step=2.ckpt"), *same).is_dir()


def test_a_disk_that_is_too_small_is_refused_before_training(fit, monkeypatch, capsys):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("ofmu_pl.checkpoints.shutil.disk_usage", lambda _: usage._replace(free=10_000))
    with pytest.raises(SystemExit):
        fit()
    assert "has 1e-05 GB free: free some space" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(fit, tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SystemExit) as stop:
        fit("--logs", str(tmp_path / "file/logs"))
    assert stop.value.code == 1
    assert "cannot be written (Not a directory): give another folder with --logs" in capsys.readouterr().err
