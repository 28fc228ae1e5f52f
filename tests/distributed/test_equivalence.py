"""Two ranks do what one does: OFMU with both engines and baselines, under DDP and FSDP2, in float64."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cli.test_faults import flip_a_bit

from ofmu_pl.checkpoints import require_sound
from ofmu_pl.errors import UserError

WORKER = str(Path(__file__).parent / "worker.py")


class Runs:
    """Runs of the worker, each made once."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def __call__(self, method, strategy, checkpoint=None):
        key = (method, strategy, checkpoint)
        if key not in self.made:
            self.made[key] = self._run(*key)
        return self.made[key]

    def _run(self, method, strategy, checkpoint):
        file = self.folder / f"{method}-{strategy}{'-resumed' if checkpoint else ''}.pt"
        launcher = [] if strategy == "one" else ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
        words = [method, strategy, str(file), "8", *([str(checkpoint)] if checkpoint else [])]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *launcher, WORKER, *words],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return torch.load(file)

    def checkpoint(self, method, strategy):
        """Of the fourth iteration."""
        self(method, strategy)
        return self.folder / f"{method}-{strategy}-step=4.ckpt"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(
    ("method", "strategy"),
    [
        ("ofmu-differences-single", "fsdp2"),
        ("ofmu-differences-single", "fsdp2-shards"),
        ("npo-single", "ddp"),
    ],
)
def test_a_run_goes_on_bit_for_bit_on_the_same_ranks(runs, method, strategy):
    """In float32."""
    whole = runs(method, strategy)
    resumed = runs(method, strategy, checkpoint=runs.checkpoint(method, strategy))
    assert resumed["batches"] == whole["batches"][4:]
    assert next(iter(whole["state"].values())).dtype == torch.float32
    assert all(torch.equal(x, resumed["state"][k]) for k, x in whole["state"].items())


def test_shards_that_are_not_whole_or_not_plain_are_refused(runs, tmp_path):
    sound = runs.checkpoint("ofmu-differences-single", "fsdp2-shards")
    require_sound(sound)
    shard = next(p for p in sorted(sound.glob("*.distcp")))

    def refused(match, change):
        copy = shutil.copytree(sound, tmp_path / match)
        change(copy)
        with pytest.raises(UserError, match=match):
            require_sound(copy)

    refused("truncated", lambda f: (f / shard.name).write_bytes(shard.read_bytes()[:-100]))
    refused("no checkpoint", lambda f: (f / shard.name).unlink())
    refused("does not match", lambda f: flip_a_bit(f / "meta.pt"))
    refused("holds more than numbers", lambda f: (f / ".metadata").write_bytes(pickle.dumps(os.system)))


def distance(a, b):
    assert a["state"].keys() == b["state"].keys()
    return max(float((x.double() - b["state"][k].double()).abs().max()) for k, x in a["state"].items())


# Differences of differences magnify the rounding of sums (1e-16) by about 1e7 on the Llama, 1e5 on the small network.
@pytest.mark.parametrize(
    ("method", "strategy", "tolerance"),
    [
        ("ofmu-exact-lm", "ddp", 1e-12),
        ("ofmu-exact-lm", "fsdp2", 1e-12),
        ("ofmu-differences-cnn", "ddp", 1e-10),
        ("ofmu-differences-cnn", "fsdp2", 1e-10),
        ("ofmu-differences-lm", "fsdp2", 1e-7),
        ("npo-lm", "ddp", 1e-12),
        ("npo-lm", "fsdp2", 1e-12),
    ],
)
def test_two_ranks_end_where_one_does(runs, method, strategy, tolerance):
    alone, together = runs(method, "one"), runs(method, strategy)
    assert together["batches"] == alone["batches"]
    assert len(alone["batches"]) == 8
    assert distance(together, alone) < tolerance


@pytest.mark.parametrize(("first", "then"), [("fsdp2", "one"), ("one", "fsdp2")])
def test_a_run_goes_on_with_another_number_of_ranks(runs, first, then):
    method = "ofmu-exact-lm"
    resumed = runs(method, then, checkpoint=runs.checkpoint(method, first))
    alone = runs(method, "one")
    assert resumed["batches"] == alone["batches"][4:]
    assert distance(resumed, alone) < 1e-12
