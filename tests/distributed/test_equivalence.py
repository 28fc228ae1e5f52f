"""Two ranks do what one does: OFMU with both engines and baselines, under DDP and FSDP2, in float64."""

import os
import pickle
import shutil

import pytest
import torch

from ofmu_pl.data import Authors
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.checkpoints import require_sound
from tests.cli.test_faults import flip_a_bit
from tests.distributed.worker import main
from tests.helpers.methods import TEXTS
from tests.helpers.process import on_ranks
from tests.helpers.training import TINY

EQUAL = [
    ("ofmu-exact-lm", "fsdp2", 1e-12),
    ("ofmu-exact-cnn", "ddp", 1e-12),
    ("npo-lm", "ddp", 1e-12),
    ("kl-files-bfloat16", "fsdp2", 1e-3),
    ("kl-files", "fsdp2", 1e-6),  # in float32; each rank reads its rows of the files, twice
    ("ofmu-bfloat16-lm", "fsdp2", 1e-7),  # adapters beside a base in bfloat16
]
MORE_EQUAL = [
    ("ofmu-exact-lm", "ddp", 1e-12),
    ("ofmu-exact-cnn", "fsdp2", 1e-12),
    ("ofmu-differences-cnn", "ddp", 1e-10),
    ("ofmu-differences-cnn", "fsdp2", 1e-10),
    # Differences of differences magnify the rounding of sums (1e-16) by about 1e7 on the Llama, 1e5 on the CNN.
    ("ofmu-differences-lm", "ddp", 1e-7),
    ("ofmu-differences-lm", "fsdp2", 1e-7),
    ("ofmu-auto-lm", "ddp", 1e-9),
    ("ofmu-auto-lm", "fsdp2", 1e-9),
    ("ofmu-shared-lm", "ddp", 1e-7),
    ("ofmu-shared-lm", "fsdp2", 1e-7),
    ("ofmu-ngram-lm", "ddp", 1e-12),
    ("ofmu-ngram-lm", "fsdp2", 1e-12),
    ("ofmu-reach-lm", "ddp", 1e-10),
    ("ofmu-reach-lm", "fsdp2", 1e-10),
]
RESUMED = [("ofmu-exact-lm", "one", "fsdp2"), ("ofmu-exact-lm", "fsdp2", "one")]
MORE_RESUMED = [
    ("ofmu-auto-lm", "one", "fsdp2"),
    ("ofmu-auto-lm", "fsdp2", "one"),
    ("ofmu-ngram-lm", "one", "fsdp2"),
    ("ofmu-ngram-lm", "fsdp2", "one"),
]
for name, setting in TEXTS.items():
    if setting.ranks:
        compared = [(f"{name}-lm", strategy, 1e-12) for strategy in ("ddp", "fsdp2")]
        MORE_EQUAL += [run for run in compared if run not in EQUAL]
        MORE_RESUMED += [(f"{name}-lm", "one", "fsdp2"), (f"{name}-lm", "fsdp2", "one")]  # a frozen model is made again
SAME_RANKS = [("ofmu-differences-single", "fsdp2-shards", "fsdp2-shards")]
MORE_SAME_RANKS = [("ofmu-differences-single", "fsdp2", "fsdp2")]


def slow(cases):
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


class Runs:
    """Runs of the worker; as many as possible in one start of its processes."""

    def __init__(self, folder):
        self.folder = folder
        data, recipe = Authors(authors=4, forget_authors=1), CausalLM(config=dict(TINY))
        data.setup()
        recipe.save(recipe.build(data, exact=False), folder / "model", data)
        self._do(EQUAL, RESUMED, SAME_RANKS)

    def _do(self, equal, others, same):
        alone = dict.fromkeys((method, "one") for method, *_ in equal)
        together = dict.fromkeys([(m, s) for m, s, _ in equal] + [(m, s) for m, s, _ in same])
        resumed = [(m, s, f) for m, f, s in others + same]
        for ranks, runs in (
            (1, [*alone]),
            (2, [*together, *(run for run in resumed if run[1] != "one")]),
            (1, [run for run in resumed if run[1] == "one"]),
        ):
            assert on_ranks(ranks, main, [self._words(*run) for run in runs]) == [0] * ranks

    def _words(self, method, strategy, first=None):
        return [
            method,
            strategy,
            str(self._file(method, strategy, first)),
            first and str(self.checkpoint(method, first)),
        ]

    def _file(self, method, strategy, first):
        return self.folder / f"{method}-{strategy}{f'-after-{first}' if first else ''}.pt"

    def __call__(self, method, strategy, first=None):
        file = self._file(method, strategy, first)
        if not file.exists():
            self._do(MORE_EQUAL, MORE_RESUMED, MORE_SAME_RANKS)
        return torch.load(file)

    def checkpoint(self, method, strategy):
        """Of the second iteration."""
        return self.folder / f"{method}-{strategy}-step=2.ckpt"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(("method", "strategy", "_"), SAME_RANKS + slow(MORE_SAME_RANKS))
def test_a_run_goes_on_bit_for_bit_on_the_same_ranks(runs, method, strategy, _):
    """In float32."""
    whole, resumed = runs(method, strategy), runs(method, strategy, strategy)
    assert resumed["batches"] == whole["batches"][2:]
    assert next(iter(whole["state"].values())).dtype == torch.float32
    assert all(torch.equal(x, resumed["state"][k]) for k, x in whole["state"].items())


def test_shards_that_are_not_whole_or_not_plain_are_refused(runs, tmp_path):
    sound = runs.checkpoint("ofmu-differences-single", "fsdp2-shards")
    require_sound(sound)
    shard = next(p for p in sorted(sound.glob("*.distcp")))

    def refused(match, change):
        copy = shutil.copytree(sound, tmp_path / f"copy_{len(list(tmp_path.iterdir()))}")
        change(copy)
        with pytest.raises(UserError, match=match):
            require_sound(copy)

    refused("truncated", lambda f: (f / shard.name).write_bytes(shard.read_bytes()[:-100]))
    refused("checkpoint", lambda f: (f / shard.name).unlink())
    refused("match", lambda f: flip_a_bit(f / "meta.pt"))
    refused("numbers", lambda f: (f / ".metadata").write_bytes(pickle.dumps(os.system)))


def distance(a, b):
    assert a["state"].keys() == b["state"].keys()
    return max(float((x.double() - b["state"][k].double()).abs().max()) for k, x in a["state"].items())


@pytest.mark.parametrize(("method", "strategy", "tolerance"), EQUAL + slow(MORE_EQUAL))
def test_two_ranks_end_where_one_does(runs, method, strategy, tolerance):
    alone, together = runs(method, "one"), runs(method, strategy)
    assert together["batches"] == alone["batches"]
    assert len(alone["batches"]) == 3
    assert distance(together, alone) < tolerance


@pytest.mark.parametrize(("method", "first", "then"), RESUMED + slow(MORE_RESUMED))
def test_a_run_goes_on_with_another_number_of_ranks(runs, method, first, then):
    resumed, alone = runs(method, then, first), runs(method, "one")
    assert resumed["batches"] == alone["batches"][2:]
    assert distance(resumed, alone) < 1e-12
