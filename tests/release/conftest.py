"""The release as it is uploaded: an archive of the source, and a wheel made from what that archive holds."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.helpers.workers import made_once

ROOT = Path(__file__).parents[2]
PARTS = ["ofmu_pl", "configs", "docs", "scripts", "tests"]
PASSING = shutil.ignore_patterns("__pycache__", "generated", ".*")
"""What lies in folders of a checkout and is in no repository."""


def build(what, tree, into):
    """Run setuptools' own hook in a tree, as pip and build do, without an environment of its own."""
    code = f"import setuptools.build_meta as backend; backend.build_{what}({str(into)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, capture_output=True)


def release(folder):
    """Fill a folder with ``dist`` (the two files) and ``site`` (the wheel as it is installed)."""
    tree, dist = folder / "tree", folder / "dist"
    for part in PARTS:
        shutil.copytree(ROOT / part, tree / part, ignore=PASSING)
    for path in ROOT.glob("*.*"):
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, tree)
    shutil.copy(ROOT / "LICENSE", tree)
    dist.mkdir()
    build("sdist", tree, dist)
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    build("wheel", source, dist)
    (wheel,) = dist.glob("*.whl")
    shutil.unpack_archive(wheel, folder / "site", "zip")  # all that installing a wheel of plain Python does


@pytest.fixture(scope="session")
def released(tmp_path_factory):
    """The folder that ``release`` filled."""
    return made_once(tmp_path_factory, "release", release)
