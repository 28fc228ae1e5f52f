"""Two processes by the command line: the same results, one set of files."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from tests.helpers.peak_memory import fsdp2
from tests.helpers.process import two_ranks


@pytest.fixture
def words(fit, models, tmp_path):
    """Words that run OFMU as ``fit`` does, in two processes under FSDP2."""

    def words(*options):
        trainer = fsdp2(2)
        trainer["strategy"]["init_args"] |= {"save_distributed_checkpoint": False, "process_group_backend": "gloo"}
        (tmp_path / "two.yaml").write_text(yaml.safe_dump({"trainer": trainer}))
        words = ["fit", "--config", str(tmp_path / "ofmu.yaml"), "-c", str(tmp_path / "two.yaml")]
        words += ["--model.network.path", str(models / "target/latest/hf"), "--logs", str(tmp_path / "two")]
        return [*words, "--evaluation.max_new_tokens", "1", *options]

    return words


@pytest.mark.parametrize("launched", ["as by torchrun", pytest.param("by itself", marks=pytest.mark.slow)])
def test_fsdp2_fits_evaluates_and_exports_as_one_process_does(fit, words, models, tmp_path, launched, monkeypatch):
    monkeypatch.setenv("OFMU_CACHE", "")  # nothing is to be known beforehand
    monkeypatch.setattr("ofmu_pl.training.together.SHARE", 0.0)  # evaluations on shards, but for the slow case
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
