"""A run interrupted at any moment goes on as if it had not been; a checkpoint that is not sound is refused."""

import errno
import json
import multiprocessing
import random
import re
import resource
import signal
import time

import pytest
import torch
import yaml
from safetensors.torch import save_file

from ofmu_pl.support.files import replacing
from tests.cli.conftest import TINY, lasting
from tests.helpers.process import EVALUATION, FORKSERVER, run, start_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def start(models, folder):
    """Starts ``fit --ckpt_path last`` under a folder of logs; returns the process."""
    start_server()
    config = folder / "ofmu.yaml"
    config.write_text(TINY.format(method="OFMU", extra="inner_steps: 2", steps=24))

    def process(logs, hold=None):
        words = ["fit", "--config", str(config), "--logs", str(folder / logs), "--ckpt_path", "last"]
        words += ["--model.network.path", str(models / "target/latest/hf"), "--evaluation.max_new_tokens", "1"]
        process = FORKSERVER.Process(target=run, args=(words, folder / f"{logs}.txt", hold))
        process.start()
        return process

    yield process
    for child in multiprocessing.active_children():
        child.kill()


@pytest.fixture(scope="module")
def whole(start, folder):
    """The last checkpoint of a run that nobody disturbed."""
    start("whole").join(300)
    return state(folder / "whole", 24)


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


def partial(folder):
    return lambda: any(folder.glob("authors/ofmu/version_*/checkpoints/.*.partial"))


def holds(folder, process):
    """Whether a process has got to where it holds a run's folder."""
    return any(f'"process": {process.pid},' in p.read_text() for p in folder.glob("authors/ofmu/version_*/.lock"))


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


TRAINING, CHECKPOINT = "training", "step=24.ckpt"
END = ["hf", EVALUATION, "samples.jsonl", "results.json", "latest"]
"""Export, evaluation and writing: each start gets to where it is held without training anything again."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kills",
    [
        [TRAINING, CHECKPOINT, EVALUATION],
        pytest.param(
            [TRAINING] * 8 + [CHECKPOINT] * 2 + [stage for stage in END for _ in range(2)],
            marks=pytest.mark.slow,
            id="twenty",
        ),
    ],
)
def test_killed_at_every_stage(start, whole, folder, kills):
    name, draw = f"killed-{len(kills)}", random.Random(len(kills))
    logs, held = folder / name, folder / f"{name}.txt.held"
    for number, stage in enumerate(kills):
        done = steps(logs)
        process = start(name, None if stage == TRAINING else stage)
        if stage != TRAINING:
            wait_for(lambda alive=process.is_alive: held.exists() or not alive())
            held.unlink()
        elif number % 3 == 2:  # while a checkpoint is being written
            wait_for(lambda alive=process.is_alive: partial(logs)() or not alive())
        else:  # from before the first iteration of this process to one or two later
            wanted = done + draw.randint(0, 1)
            wait_for(lambda p=process, n=wanted: (holds(logs, p) and steps(logs) >= n) or not p.is_alive())
            time.sleep(draw.uniform(0, 0.1))
        assert process.is_alive(), "the run ended before it was killed often enough"
        process.kill()
        process.join()
    last = start(name)
    last.join(300)
    assert last.exitcode == 0, (folder / f"{name}.txt").read_text()[-2000:]
    assert_same(state(logs, 24), whole)
    method = logs / "authors/ofmu"
    assert sorted(p.name for p in method.iterdir()) == [".lock", "latest", "version_0"]
    results = [json.loads((f / "authors/ofmu/latest/results.json").read_text()) for f in (logs, folder / "whole")]
    assert lasting(results[0]) == lasting(results[1])
    for path in logs.rglob("*.ckpt"):
        assert torch.load(path, weights_only=True)["global_step"] == int(path.stem.split("=")[1])
    for path in logs.rglob("*.json"):
        json.loads(path.read_text())
    assert not list(logs.rglob(".*.partial"))


def test_a_second_start_leaves_the_first_one_and_its_half_written_checkpoint_alone(start, folder):
    first = start("twice", "step=2.ckpt")
    wait_for((folder / "twice.txt.held").exists)
    second = start("twice")
    second.join(300)
    assert first.is_alive()
    assert second.exitcode == 1
    said = (folder / "twice.txt").read_text()
    (line,) = [line for line in said.splitlines() if line.startswith("ofmu_pl: error: ")]
    assert re.search(rf"version_0' \(.*\b{first.pid}\b", line)
    assert "Traceback" not in said
    assert partial(folder / "twice")()
    first.kill()


def test_sigterm_writes_a_checkpoint_and_exits(start, whole, folder):
    process, logs = start("asked"), folder / "asked"
    wait_for(lambda: steps(logs) >= 3)
    process.terminate()
    process.join(60)
    assert process.exitcode == 128 + signal.SIGTERM
    said = (folder / "asked.txt").read_text()
    stopped = steps(logs)
    assert re.search(rf"SIGTERM .* iteration {stopped};", said)
    assert "Traceback" not in said
    again = start("asked")
    again.join(120)
    assert again.exitcode == 0
    assert_same(state(logs, 24), whole)


@pytest.fixture
def resume(fit, refused):
    """Goes on from a checkpoint after something was done to it; returns the one sentence."""
    first = fit("--trainer.max_steps", "2")

    def attempt(change=lambda path: path, *options):
        return refused("--ckpt_path", str(change(first / "checkpoints/step=2.ckpt")), *options)

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
        (truncate, "truncated"),
        pytest.param(flip_a_bit, "checksum", marks=pytest.mark.slow),
        (lambda path: path.with_name("step=9.ckpt"), "step=9.ckpt'"),
    ],
)
def test_a_checkpoint_that_is_not_sound(resume, change, said):
    line = resume(change)
    assert said in line
    assert "--ckpt_path last" in line


def test_a_checkpoint_of_other_settings(resume, fit):
    line = resume(lambda path: path, "--model.stepper.lr", "0.5", "--model.optimizer", "torch.optim.SGD")
    assert re.search(r"\(model\.init_args\.optimizer\.class_path .*AdamW.*SGD", line)
    same = ["--model.micro_batch_size", "2", "--trainer.max_steps", "3"]
    resumed = fit("--ckpt_path", str(resume.folder / "checkpoints/step=2.ckpt"), *same)
    config = yaml.safe_load((resumed / "config.yaml").read_text())
    assert config["model"]["init_args"]["micro_batch_size"] == 2, "a checkpoint does not override the configuration"


def test_a_run_goes_on_with_the_evaluation_that_it_began_with(resume):
    line = resume(lambda path: path, "--evaluation.rows", "3", "--trainer.max_steps", "3")
    assert re.search(r"model before .* rows None, .* 3\b.*evaluation", line)


def test_a_disk_that_is_full_while_a_checkpoint_is_written(refused, tmp_path):
    """torch's writer and safetensors' have words of their own for that; a limit on files stands for the disk's."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        line = refused()
        assert "step=1.ckpt' " in line
        assert "full" in line
        with (
            pytest.raises(OSError, match=f"Errno ({errno.ENOSPC}|{errno.EFBIG})") as full,
            replacing(tmp_path / "weights") as temporary,
        ):
            save_file({"a": torch.zeros(100_000)}, temporary)
        assert full.value.filename == str(tmp_path / "weights")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
