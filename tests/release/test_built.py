"""What the archive of the source and the wheel hold, and what the wheel says of itself."""

import re
import subprocess
import sys
import tarfile
from email.parser import Parser
from pathlib import Path

import ofmu_pl

ROOT = Path(__file__).parents[2]


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def metadata(released):
    (info,) = (released / "site").glob("*.dist-info")
    return info, Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))


def test_the_archive_holds_the_repository(released):
    """Whoever has it can build, test and read, and nothing of whoever built it is in it."""
    (archive,) = (released / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as source:
        inside = {member.name.partition("/")[2] for member in source if member.isfile()}
    made = {"PKG-INFO", "setup.cfg"} | {name for name in inside if ".egg-info/" in name}
    tree = {name for name in files(released / "tree") if ".egg-info/" not in name}
    assert inside - made == tree
    assert {"LICENSE", "CHANGELOG.md", "constraints.txt", "tests/release/test_built.py"} <= inside


def test_the_wheel_made_from_it_holds_the_package_and_the_configurations(released):
    wanted = {f"ofmu_pl/{name}" for name in files(released / "tree/ofmu_pl")}
    wanted |= {f"ofmu_pl/configs/{name}" for name in files(released / "tree/configs")}
    assert {name for name in files(released / "site") if ".dist-info/" not in name} == wanted


def test_what_it_says_of_itself(released):
    info, said = metadata(released)
    assert said["Version"] == ofmu_pl.__version__
    assert said["License-Expression"] == "MIT"
    assert (info / "licenses/LICENSE").is_file()
    assert said.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert "ofmu_pl = ofmu_pl.cli:main" in (info / "entry_points.txt").read_text()


def test_the_changelog_has_this_version_and_its_day():
    heads = re.findall(r"^## \[(.*?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0] == ("Unreleased", "")
    assert heads[1][0] == ofmu_pl.__version__
    assert all(day for _, day in heads[1:])


def test_it_runs_outside_the_checkout(released, tmp_path):
    words = ["-c", "import ofmu_pl; from ofmu_pl.cli import main; print(ofmu_pl.__file__); main(['configs'])"]
    env = {"PYTHONPATH": str(released / "site"), "PATH": ""}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    place, *lines = done.stdout.splitlines()
    assert place == str(released / "site/ofmu_pl/__init__.py")
    assert len(lines) == len(list((ROOT / "configs").rglob("*.yaml")))
