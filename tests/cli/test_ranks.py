"""Two processes by the command line: the same results, one set of files."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml

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
def fit_on_two(fit, models, tmp_path):
    """Runs OFMU as ``fit`` does, in two processes under FSDP2."""

    def run(*options, model=None):
        alone = fit("--trainer.max_steps", "1")  # writes the configuration too
        assert alone.is_dir()
        overlay = {"trainer": {"devices": 2, "strategy": FSDP2}} | ({"model": model} if model else {})
        (tmp_path / "two.yaml").write_text(yaml.safe_dump(overlay))
        words = [sys.executable, "-m", "ofmu_pl", "fit", "--config", str(tmp_path / "ofmu.yaml")]
        words += ["-c", str(tmp_path / "two.yaml"), "--model.network.path", str(models / "target/latest/hf")]
        words += ["--logs", str(tmp_path / "two"), *options]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OFMU_CACHE": ""}
        return subprocess.run(words, check=False, env=environment, capture_output=True, text=True, timeout=280)

    return run


def test_fsdp2_fits_evaluates_and_exports_as_one_process_does(fit, fit_on_two, models, tmp_path):
    options = ["--model.engine", "finite_difference", "--trainer.max_steps", "2"]
    options += ["--evaluation.reference", str(models / "retrained/latest/hf"), "--evaluation.every_n_steps", "1"]
    done = fit_on_two(*options)
    assert done.returncode == 0, done.stderr[-3000:]
    alone, together = fit(*options), tmp_path / "two/authors/ofmu/version_0"
    first, second = (json.loads((f / "results.json").read_text()) for f in (alone, together))
    assert [h["step"] for h in second["history"]] == [1]
    for name, result in first["metrics"].items():
        assert second["metrics"][name]["value"] == pytest.approx(result["value"], rel=0.02, abs=0.02), name
    assert (together / "hf/model.safetensors").stat().st_size == (alone / "hf/model.safetensors").stat().st_size
    assert len(list((together / "checkpoints").glob("*.ckpt"))) == len(list((alone / "checkpoints").glob("*.ckpt")))


EIGHT_BIT = {"class_path": "bitsandbytes.optim.AdamW8bit", "init_args": {"lr": 0.001}}


def test_what_shards_cannot_do_is_said(fit_on_two):
    done = fit_on_two(model={"class_path": "OFMU", "init_args": {"optimizer": EIGHT_BIT}})
    assert done.returncode == 1
    assert "cannot step on FSDP2's shards" in done.stderr
