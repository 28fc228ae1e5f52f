"""What takes the place of a folder: the old content stays until the new one stands."""

import errno
import os
import shutil

import pytest

from ofmu_pl.data.image_folders import read_image
from ofmu_pl.data.own_files import read_source
from ofmu_pl.support import files
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import read_json, replacing
from ofmu_pl.training.checkpoints import require_sound


@pytest.fixture
def model(tmp_path):
    """A folder with a file, as an exported model is."""
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "weights").write_text("old")
    return folder


def write(folder, text):
    folder.mkdir()
    (folder / "weights").write_text(text)


def test_a_folder_takes_the_place_of_another_and_leaves_nothing_beside_it(model, tmp_path):
    with replacing(model) as temporary:
        write(temporary, "new")
    assert (model / "weights").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["hf"]


def test_what_a_killed_process_of_this_number_left_is_no_hindrance(model, tmp_path):
    """Numbers of processes recur in containers."""
    for part in ("", ".old"):
        write(tmp_path / f".hf{part}.{os.getpid()}.partial", "half")
    with replacing(model) as temporary:
        write(temporary, "new")
    assert (model / "weights").read_text() == "new"


def test_the_old_folder_is_whole_when_the_new_one_takes_its_name(model, monkeypatch):
    """A process that is killed while it removes the old content has the new one in place."""
    seen, rmtree = [], shutil.rmtree

    def remove(path):
        seen.append((model / "weights").read_text())
        rmtree(path)

    monkeypatch.setattr(files.shutil, "rmtree", remove)
    with replacing(model) as temporary:
        write(temporary, "new")
    assert seen == ["new"]


def test_the_old_folder_comes_back_if_the_new_one_cannot_take_its_name(model, tmp_path, monkeypatch):
    replace = os.replace

    def refuse(a, b):
        if b == model and ".old." not in a.name:
            raise OSError(5, "Input/output error")
        replace(a, b)

    monkeypatch.setattr(files.os, "replace", refuse)
    with pytest.raises(OSError, match="Errno 5"), replacing(model) as temporary:
        write(temporary, "new")
    assert (model / "weights").read_text() == "old"
    assert list(tmp_path.glob(".*")) == []


def test_a_block_that_fails_leaves_the_old_folder(model, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(NotADirectoryError), replacing(model):
        write(tmp_path / "file/new", "new")
    assert (model / "weights").read_text() == "old"
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_disk_that_lacks_fsync_costs_a_warning(model, tmp_path, monkeypatch, code):
    def lacking(_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, "fsync", lacking)
    with pytest.warns(UserWarning, match="fsync"), replacing(model) as temporary:
        write(temporary, "new")
    assert (model / "weights").read_text() == "new"
    code = errno.EIO
    with pytest.raises(OSError, match="Errno 5"), replacing(model) as temporary:
        write(temporary, "newer")
    assert (model / "weights").read_text() == "new"


@pytest.mark.parametrize(
    "read", [read_json, read_image, require_sound, lambda path: read_source(path.parent, "forget")]
)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_never_ends_is_refused(read, make, tmp_path):
    make(tmp_path / "a.txt")
    with pytest.raises(UserError, match="pipe"):
        read(tmp_path / "a.txt")
