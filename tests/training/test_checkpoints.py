"""Which checkpoints a run goes on from: sound ones, of runs with the same settings; ``last`` passes over all others."""

import errno
import json
import os
import pickle
import random
import shutil
import warnings
import zipfile

import pytest
import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

from ofmu_pl.modules import FineTune
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records.results import Results
from ofmu_pl.training.checkpoints import ENDED, SETTINGS, newest, progress, require_fit, require_sound, resumed_from
from ofmu_pl.training.run_folders import choose
from ofmu_pl.training.settings import length, settings
from ofmu_pl.training.shards import names, shard_errors
from tests.helpers.training import TINY, train

OURS = {"callbacks": {}, "data_hashes": {}, "epoch": 0, "global_step": 1, "loops": {}, "lr_schedulers": []}
OURS["pytorch-lightning_version"] = "2.6"
WHOLE = {**OURS, "state_dict": {}, "optimizer_states": []}


def tensors():
    g = torch.Generator().manual_seed(0)
    groups = [{"lr": 0.1, "betas": (0.9, 0.99), "params": ["a", "b"]}, {"lr": 0.2, "params": []}]
    optimizer = {"state": {"a": {"exp_avg": torch.zeros(16, 32)}, "b": {}}, "param_groups": groups}
    weights = {"a": torch.randn(16, 32, generator=g), "b": torch.randn(7, generator=g)}
    return {"state_dict": weights, "optimizer_0": optimizer}


META = {**OURS, "names": names(tensors())}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """A folder as FSDP2 leaves it, of one process."""
    path = tmp_path_factory.mktemp("shards") / "step=1.ckpt"
    dcp.save(tensors(), checkpoint_id=path, no_dist=True)
    torch.save(META, path / "meta.pt")
    require_sound(path)
    return path


@pytest.fixture
def copy(shards, tmp_path):
    return shutil.copytree(shards, tmp_path / "version_1/checkpoints/step=1.ckpt")


@pytest.fixture
def older(tmp_path):
    """Another checkpoint, which is sound."""
    path = tmp_path / "version_0/checkpoints/step=1.ckpt"
    path.parent.mkdir(parents=True)
    torch.save(WHOLE, path)
    os.utime(path, (0, 0))
    require_sound(path)
    return path


def sound(path):
    try:
        require_sound(path)
    except UserError:
        return False
    return True


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << at % 8
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "meta.pt"])
def test_one_byte_is_noticed_or_changes_nothing(shards, copy, name):
    size, noticed = (shards / name).stat().st_size, 0
    for at in random.Random(0).sample(range(size), 150):
        flip(copy / name, at)
        if sound(copy):
            loaded = tensors()
            for x in loaded["state_dict"].values():
                x.zero_()
            dcp.load(loaded, checkpoint_id=copy, no_dist=True)
            assert all(torch.equal(x, tensors()["state_dict"][k]) for k, x in loaded["state_dict"].items()), at
            header = torch.load(copy / "meta.pt", weights_only=True)
            assert header == META, at
        else:
            noticed += 1
        shutil.copy(shards / name, copy / name)
    assert noticed > 30


def test_a_byte_of_a_tensor_is_noticed(copy):
    shard = copy / "__0_0.distcp"
    flip(shard, shard.read_bytes().index(tensors()["state_dict"]["a"].numpy().tobytes()) + 1000)
    with pytest.raises(UserError, match=r"step=1\.ckpt' .*truncated"):
        require_sound(copy)


@pytest.mark.parametrize(("offsets", "sizes"), [((1, 0), (16, 32)), ((0, 0), (15, 32)), ((0, 0), (16, 33))])
def test_an_index_that_does_not_fit_its_records(copy, offsets, sizes):
    index = pickle.loads((copy / ".metadata").read_bytes())
    index.state_dict_metadata["state_dict.a"].chunks = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))]
    (copy / ".metadata").write_bytes(pickle.dumps(index))
    assert not sound(copy)


@pytest.mark.parametrize("name", [b"state_dict.a", b"exp_avg", b"betas", b"params"])
def test_a_name_that_is_damaged_in_the_index(copy, older, tmp_path, name):
    """No record knows its name: torch would say in the midst of loading that the right one is missing."""
    index = copy / ".metadata"
    content = index.read_bytes()
    assert name in content
    index.write_bytes(content.replace(name, name[:-1] + b"~"))
    with pytest.raises(UserError, match=r"step=1\.ckpt' .*truncated"):
        require_sound(copy)
    with pytest.warns(UserWarning, match=r"step=1\.ckpt.* passed "):
        assert newest(tmp_path) == older


def test_shards_of_another_network(tmp_path):
    folder = tmp_path / "step=1.ckpt"
    weights = {f"network.{k}": x for k, x in nn.Linear(3, 2).state_dict().items()}
    dcp.save({"state_dict": weights, "optimizer_0": {}}, checkpoint_id=folder, no_dist=True)
    require_fit(folder, nn.Linear(3, 2))
    with pytest.raises(UserError, match=r"weight .*\[2, 3\] .*\[2, 4\]"):
        require_fit(folder, nn.Linear(4, 2))
    with pytest.raises(UserError, match=r"\(bias .*\[2\]"):
        require_fit(folder, nn.Linear(3, 2, bias=False))


def zipped(path, name, content=b"x"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)


def rename_a_record(path):
    """Bytes that are no text, in a name of the archive."""
    torch.save(WHOLE, path)
    path.write_bytes(path.read_bytes().replace(b"data.pkl", b"data.\xff\xfe\xfd"))


STRANGE = {
    "a dangling link": lambda p: p.symlink_to(p.parent / "nothing"),
    "a link to itself": lambda p: p.symlink_to(p),
    "an empty folder": lambda p: p.mkdir(),
    "an empty file": lambda p: p.write_bytes(b""),
    "text": lambda p: p.write_text("a checkpoint"),
    "another archive": lambda p: zipped(p, "hello.txt"),
    "an archive with names that are no text": rename_a_record,
    "a list": lambda p: torch.save([1, 2], p),
    "a number": lambda p: torch.save(1, p),
    "a tensor": lambda p: torch.save(torch.zeros(2), p),
    "another tool's dictionary": lambda p: torch.save({"model": torch.zeros(2)}, p),
    "a dictionary that lacks loops": lambda p: torch.save({k: v for k, v in WHOLE.items() if k != "loops"}, p),
    "a dictionary without weights": lambda p: torch.save(OURS, p),
}


def test_damage_near_the_end_of_an_archive_is_noticed_or_changes_nothing(older, tmp_path):
    content = {**WHOLE, "state_dict": {"a": torch.zeros(3)}}
    torch.save(content, older)
    whole, refused = older.read_bytes(), 0
    for n in range(1, 400, 3):
        changed = bytearray(whole)
        changed[-n] ^= 0xFF
        older.write_bytes(changed)
        with warnings.catch_warnings(record=True):
            found = newest(tmp_path)
        refused += found is None
        assert found is None or torch.load(older, weights_only=True).keys() == content.keys(), n
    assert refused > 30


@pytest.mark.parametrize("what", STRANGE)
def test_last_passes_over_whatever_is_not_sound(older, tmp_path, what):
    newer = tmp_path / "version_1/checkpoints/step=2.ckpt"
    newer.parent.mkdir(parents=True)
    STRANGE[what](newer)
    with pytest.raises(UserError, match=r"step=2\.ckpt' [^\n]*--ckpt_path"):
        require_sound(newer)
    with pytest.warns(UserWarning, match=r"step=2\.ckpt.* passed "):
        assert newest(tmp_path) == older


@pytest.mark.parametrize("named", [True, False])
def test_a_disk_that_is_full_while_shards_are_written(tmp_path, named):
    """What torch gathers from the ranks is no ``Exception``."""
    error = OSError(errno.ENOSPC, "No space left on device", *(["there/0.distcp"] if named else []))
    with pytest.raises(OSError, match="Errno 28") as full, shard_errors(tmp_path):
        raise CheckpointException("write", {1: (error, [])})
    assert full.value.filename == ("there/0.distcp" if named else str(tmp_path))
    with pytest.raises(CheckpointException), shard_errors(tmp_path):
        raise CheckpointException("write", {0: (ValueError("Another thing."), [])})


def resolved(method):
    return {"model": {"class_path": method, "init_args": {"beta": 0.5}}, "trainer": {"max_steps": 4}}


def test_a_class_that_moved_within_the_package_is_the_same_setting(tmp_path):
    path = tmp_path / "old.ckpt"
    old = {"model.class_path": '"ofmu_pl.modules.ofmu.OFMU"', "model.init_args.beta": "0.5"}
    torch.save({SETTINGS: old}, path)
    assert resumed_from(str(path), tmp_path, settings(resolved("ofmu_pl.OFMU"))) == path
    for other in ("ofmu_pl.NPO", "theirs.OFMU"):
        with pytest.raises(UserError, match=r'\(model\.class_path .*"OFMU"'):
            resumed_from(str(path), tmp_path, settings(resolved(other)))


def test_options_of_older_versions_are_no_settings(tmp_path):
    path, now = tmp_path / "old.ckpt", resolved("ofmu_pl.OFMU")
    torch.save({SETTINGS: settings(now) | {"model.init_args.rollbacks": "3"}}, path)
    now["data"] = {"init_args": {"num_batches": 1}}
    assert resumed_from(str(path), tmp_path, settings(now)) == path


def test_what_older_versions_kept_for_steps_that_they_halved_is_no_hindrance(tmp_path):
    train(FineTune(CausalLM(config=TINY)), steps=1, callbacks=[ModelCheckpoint(tmp_path, "old")])
    path = tmp_path / "old.ckpt"
    torch.save(torch.load(path, weights_only=True) | {"step_scale": 1.0}, path)
    assert train(FineTune(CausalLM(config=TINY)), steps=2, ckpt_path=path).global_step == 2


def test_the_precision_is_a_setting_and_its_older_name_the_same(tmp_path):
    path = tmp_path / "old.ckpt"
    now = {name: resolved("ofmu_pl.OFMU") for name in ("bf16", "bf16-mixed", "32-true", None)}
    for name, config in now.items():
        config["trainer"]["precision"] = name
    for then, same, other in (("bf16", "bf16-mixed", None), (None, "32-true", "bf16")):
        torch.save({SETTINGS: settings(now[then])}, path)
        assert resumed_from(str(path), tmp_path, settings(now[same])) == path
        with pytest.raises(UserError, match=r'\(trainer.precision .*".*-.*", .*".*-.*"\)'):
            resumed_from(str(path), tmp_path, settings(now[other]))
    before = {k: v for k, v in settings(now["bf16"]).items() if k != "trainer.precision"}  # of older versions
    torch.save({SETTINGS: before}, path)
    assert resumed_from(str(path), tmp_path, settings(now["bf16"])) == path


def test_a_finished_run_of_another_precision_is_another_run(tmp_path):
    """It has kept no checkpoint, so that its configuration is what is compared."""
    config = resolved("ofmu_pl.OFMU") | {"export": {"folder": None}}
    folder = tmp_path / "version_0"
    folder.mkdir()
    (folder / "config.yaml").write_text(json.dumps(config))
    Results({}, provenance={"steps": 4}).write(folder / "results.json")
    (tmp_path / "latest").symlink_to("version_0")
    assert choose(tmp_path, "fit", "last", config).done
    config["trainer"]["precision"] = "bf16-mixed"
    assert not choose(tmp_path, "fit", "last", config).done


def stopped_by(class_path, gradients=8.0):
    callbacks = [{"class_path": class_path, "init_args": {"gradients": gradients}}]
    return {"trainer": {"max_steps": 40, "callbacks": callbacks}}


def test_a_run_that_a_callback_stopped_has_ended_wherever_the_callbacks_class_lies_now(tmp_path):
    path, old = tmp_path / "old.ckpt", stopped_by("ofmu_pl.callbacks.budget.GradientBudget")
    names = ("max_steps", "max_epochs", "min_steps", "min_epochs", "max_time", "callbacks")
    then = json.dumps({name: old["trainer"].get(name) for name in names}, sort_keys=True)  # as 0.1.0 wrote it
    for written in (then, length(stopped_by("ofmu_pl.GradientBudget"))):
        torch.save({"global_step": 4, ENDED: written}, path)
        assert progress(path, stopped_by("ofmu_pl.training.budget.GradientBudget")) == (4, True)
        assert progress(path, stopped_by("ofmu_pl.training.budget.GradientBudget", 16.0)) == (4, False)
        assert progress(path, stopped_by("theirs.GradientBudget")) == (4, False)
    torch.save({"global_step": 4}, path)
    assert progress(path, stopped_by("ofmu_pl.GradientBudget")) == (4, False)
