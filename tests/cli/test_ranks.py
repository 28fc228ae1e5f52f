"""Two processes by the command line: the same results, one set of files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import TINY
from tests.helpers.process import two_ranks

FSDP2 = {
    "class_path": "lightning.pytorch.strategies.ModelParallelStrategy",
    "init_args": {
        "data_parallel_size": 2,
        "tensor_parallel_size": 1,
        "save_distributed_checkpoint": False,
        "process_group_backend": "gloo",
    },
}


@pytest.fixture
def words(fit, models, tmp_path):
    """Words that run OFMU as ``fit`` does, in two processes under FSDP2."""

    def words(*options, model=None, strategy=FSDP2):
        overlay = {"trainer": {"devices": 2, "strategy": strategy}} | ({"model": model} if model else {})
        (tmp_path / "two.yaml").write_text(yaml.safe_dump(overlay))
        words = ["fit", "--config", str(tmp_path / "ofmu.yaml"), "-c", str(tmp_path / "two.yaml")]
        words += ["--model.network.path", str(models / "target/latest/hf"), "--logs", str(tmp_path / "two")]
        return [*words, "--evaluation.max_new_tokens", "1", *options]

    return words


@pytest.mark.parametrize("launched", ["as by torchrun", pytest.param("by itself", marks=pytest.mark.slow)])
def test_fsdp2_fits_evaluates_and_exports_as_one_process_does(fit, words, models, tmp_path, launched, monkeypatch):
    monkeypatch.setenv("OFMU_CACHE", "")  # nothing is to be known beforehand
    options = ["--model.engine", "finite_difference", "--trainer.max_steps", "2"]
    options += ["--evaluation.reference", str(models / "retrained/latest/hf"), "--evaluation.every_n_steps", "1"]
    options += ["--evaluation.max_new_tokens", "8"]
    if launched == "by itself":
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "ofmu_pl", *words(*options)]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr[-3000:]
    else:
        assert two_ranks(words(*options), tmp_path / "said.txt") == [0, 0], (tmp_path / "said.txt").read_text()[-3000:]
    alone, together = fit(*options), tmp_path / "two/authors/ofmu/version_0"
    first, second = (json.loads((f / "results.json").read_text()) for f in (alone, together))
    assert [h["step"] for h in second["history"]] == [1]
    for name, result in first["metrics"].items():
        assert second["metrics"][name]["value"] == pytest.approx(result["value"], rel=0.02, abs=0.02), name
    targets = [x["metrics"]["gradient_alignment"]["target"] for x in (first, second)]
    assert targets[0] == pytest.approx(targets[1], rel=1e-3), "the retrained model is cut among ranks for it"
    assert (together / "hf/model.safetensors").stat().st_size == (alone / "hf/model.safetensors").stat().st_size
    assert len(list((together / "checkpoints").glob("*.ckpt"))) == len(list((alone / "checkpoints").glob("*.ckpt")))


EIGHT_BIT = {"class_path": "bitsandbytes.optim.AdamW8bit", "init_args": {"lr": 0.001}}


@pytest.mark.slow
def test_what_shards_cannot_do_is_said(words, tmp_path):
    codes = two_ranks(words(model={"class_path": "OFMU", "init_args": {"optimizer": EIGHT_BIT}}), tmp_path / "said.txt")
    assert codes == [1, 1]
    (line,) = [x for x in (tmp_path / "said.txt").read_text().splitlines() if "ofmu_pl: error: " in x]
    assert "cannot step on FSDP2's shards" in line


@pytest.mark.slow
def test_a_disk_that_is_full_while_shards_are_written(words, tmp_path):
    """A limit on the size of files stands for the disk's; torch raises no Exception there but a BaseException."""
    shards = FSDP2 | {"init_args": FSDP2["init_args"] | {"save_distributed_checkpoint": True}}
    output = tmp_path / "said.txt"
    assert two_ranks(words("--trainer.max_steps", "1", strategy=shards), output, largest_file=20_000) == [1, 1]
    (line,) = [line for line in output.read_text().splitlines() if "ofmu_pl: error: " in line]
    assert f"The disk of '{tmp_path}/two/" in line
    assert "is full: free some space" in line
    assert "Traceback" not in output.read_text()


@pytest.fixture
def long_run_on_two(models, tmp_path):
    """A run of two ranks with DDP that would take hours: its process and rank 1's number, once both train."""
    (tmp_path / "ofmu.yaml").write_text(TINY.format(method="OFMU", extra="inner_steps: 2", steps=100_000))
    words = [sys.executable, "-m", "ofmu_pl", "fit", "--config", str(tmp_path / "ofmu.yaml"), "--logs", str(tmp_path)]
    words += ["--model.network.path", str(models / "target/latest/hf"), "--evaluation.max_new_tokens", "1"]
    words += ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OFMU_CACHE": ""}
    with (tmp_path / "output.txt").open("w") as output:
        first = subprocess.Popen(words, env=environment, stdout=output, stderr=output)
    wait_for(lambda: list(tmp_path.rglob("step=2.ckpt")))
    (second,) = map(int, Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split())
    yield first, second, tmp_path / "output.txt"
    first.kill()


def wait_for(condition, seconds=200):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


def alive(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("killed", "sentence"),
    [
        (1, "Rank 1 of 2 was killed by SIGKILL, as the system does when memory runs out; the same line with"),
        (0, "Rank 1 of 2 ends, since rank 0, which started it, is gone;"),
    ],
)
@pytest.mark.slow  # a minute, for two processes begin as a user's do
def test_a_rank_that_dies_is_named(long_run_on_two, killed, sentence):
    first, second, output = long_run_on_two
    os.kill([first.pid, second][killed], signal.SIGKILL)
    code = first.wait(30)
    wait_for(lambda: not alive(second), 30)
    said = output.read_text()
    assert code == [-signal.SIGKILL, 1][killed]
    assert f"ofmu_pl: error: {sentence}" in said
    assert said.count("ofmu_pl: error: ") == 1
    assert "Traceback" not in said
