"""A checkpoint that is damaged, or is not ours, is refused with a sentence, and ``last`` takes the one before."""

import errno
import os
import pickle
import random
import shutil
import warnings
import zipfile

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

from ofmu_pl.support.errors import UserError
from ofmu_pl.training.checkpoints import newest, require_fit, require_sound
from ofmu_pl.training.shards import names, shard_errors

OURS = {
    "callbacks": {},
    "data_hashes": {},
    "epoch": 0,
    "global_step": 1,
    "loops": {},
    "lr_schedulers": [],
    "pytorch-lightning_version": "2.6",
}


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
def test_one_byte_is_noticed_or_changes_nothing(shards, tmp_path, name):
    size = (shards / name).stat().st_size
    copy = tmp_path / "step=1.ckpt"
    shutil.copytree(shards, copy)
    noticed = 0
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


def test_a_byte_of_a_tensor_is_noticed(shards, tmp_path):
    copy = shutil.copytree(shards, tmp_path / "step=1.ckpt")
    shard = copy / "__0_0.distcp"
    flip(shard, shard.read_bytes().index(tensors()["state_dict"]["a"].numpy().tobytes()) + 1000)
    with pytest.raises(UserError, match="is truncated or no checkpoint"):
        require_sound(copy)


@pytest.mark.parametrize(("offsets", "sizes"), [((1, 0), (16, 32)), ((0, 0), (15, 32)), ((0, 0), (16, 33))])
def test_an_index_that_does_not_fit_its_records(shards, tmp_path, offsets, sizes):
    copy = shutil.copytree(shards, tmp_path / "step=1.ckpt")
    index = pickle.loads((copy / ".metadata").read_bytes())
    index.state_dict_metadata["state_dict.a"].chunks = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))]
    (copy / ".metadata").write_bytes(pickle.dumps(index))
    assert not sound(copy)


@pytest.mark.parametrize("name", [b"state_dict.a", b"exp_avg", b"betas", b"params"])
def test_a_name_that_is_damaged_in_the_index(shards, tmp_path, name):
    """No record knows its name: torch would say in the midst of loading that the right one is missing."""
    copy = shutil.copytree(shards, tmp_path / "version_1/checkpoints/step=1.ckpt")
    older = shutil.copytree(shards, tmp_path / "version_0/checkpoints/step=1.ckpt")
    os.utime(older, (0, 0))
    index = copy / ".metadata"
    content = index.read_bytes()
    assert name in content
    index.write_bytes(content.replace(name, name[:-1] + b"~"))
    with pytest.raises(UserError, match="is truncated or no checkpoint"):
        require_sound(copy)
    with pytest.warns(UserWarning, match="is passed over"):
        assert newest(tmp_path) == older


def test_shards_of_another_network(tmp_path):
    folder = tmp_path / "step=1.ckpt"
    weights = {f"network.{k}": x for k, x in nn.Linear(3, 2).state_dict().items()}
    dcp.save({"state_dict": weights, "optimizer_0": {}}, checkpoint_id=folder, no_dist=True)
    require_fit(folder, nn.Linear(3, 2))
    with pytest.raises(UserError, match=r"weight is \[2, 3\] there, \[2, 4\] here\): give the run the network"):
        require_fit(folder, nn.Linear(4, 2))
    with pytest.raises(UserError, match=r"\(bias is \[2\] there, missing here\)"):
        require_fit(folder, nn.Linear(3, 2, bias=False))


def zipped(path, name, content=b"x"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)


def rename_a_record(path):
    """Bytes that are no text, in a name of the archive."""
    torch.save({**OURS, "state_dict": {}, "optimizer_states": []}, path)
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
    "a dictionary that lacks loops": lambda p: torch.save(
        {**{k: v for k, v in OURS.items() if k != "loops"}, "state_dict": {}, "optimizer_states": []}, p
    ),
    "a dictionary without weights": lambda p: torch.save(OURS, p),
}


def test_damage_near_the_end_of_an_archive_is_noticed_or_changes_nothing(tmp_path):
    path = tmp_path / "version_0/checkpoints/step=1.ckpt"
    path.parent.mkdir(parents=True)
    content = {**OURS, "state_dict": {"a": torch.zeros(3)}, "optimizer_states": []}
    torch.save(content, path)
    whole, refused = path.read_bytes(), 0
    for n in range(1, 400, 3):
        changed = bytearray(whole)
        changed[-n] ^= 0xFF
        path.write_bytes(changed)
        with warnings.catch_warnings(record=True):
            found = newest(tmp_path)
        refused += found is None
        assert found is None or torch.load(path, weights_only=True).keys() == content.keys(), n
    assert refused > 30


@pytest.mark.parametrize("what", STRANGE)
def test_last_passes_over_whatever_is_not_sound(tmp_path, what):
    older = tmp_path / "version_0/checkpoints/step=1.ckpt"
    newer = tmp_path / "version_1/checkpoints/step=2.ckpt"
    for path in (older, newer):
        path.parent.mkdir(parents=True)
    torch.save({**OURS, "state_dict": {}, "optimizer_states": []}, older)
    require_sound(older)
    STRANGE[what](newer)
    with pytest.raises(UserError, match=r"step=2.ckpt' (is|does not) [^\n]*: give another one"):
        require_sound(newer)
    with pytest.warns(UserWarning, match="is passed over"):
        assert newest(tmp_path) == older


@pytest.mark.parametrize("named", [True, False])
def test_a_disk_that_is_full_while_shards_are_written(tmp_path, named):
    """What torch gathers from the ranks is no ``Exception``."""
    error = OSError(errno.ENOSPC, "No space left on device", *(["there/0.distcp"] if named else []))
    with pytest.raises(OSError, match="No space left on device") as full, shard_errors(tmp_path):
        raise CheckpointException("write", {1: (error, [])})
    assert full.value.filename == ("there/0.distcp" if named else str(tmp_path))
    with pytest.raises(CheckpointException), shard_errors(tmp_path):
        raise CheckpointException("write", {0: (ValueError("Another thing."), [])})
