"""What README and docs print runs: from the wheel, outside the checkout, in a reader's folder."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from tests.helpers.printed import blocks, commands
from tests.helpers.printed_files import BEFORE_THE_BLOCKS, fill
from tests.helpers.printed_runs import DRY, NOT_RUN, RUN, TOFU, way
from tests.helpers.workers import made_once

PRINTED = {" ".join(words): way(words) for _, words in commands()}
PAGES = sorted({page for page, _ in blocks("python")})


def printed(how):
    """Every command that runs in this way."""
    found = [line for line, (its, *_) in PRINTED.items() if its == how]
    return pytest.mark.parametrize("line", found, ids=[line.removeprefix("python -m ofmu_pl ") for line in found])


def test_every_command_has_one_way_and_no_way_is_left_over():
    """Of a new command ``tests/helpers/printed_runs.py`` has to say how it runs, or why it does not."""
    assert [line for line, (how, *_) in PRINTED.items() if how == "new"] == []
    assert way("python -m ofmu_pl fit --config configs/new.yaml".split())[0] == "new"
    words = {word for _, line in commands() for word in line}
    assert {*NOT_RUN, *DRY, *RUN} <= words


@pytest.fixture(scope="module")
def run(released):
    """Runs Python with the wheel in a folder; its last lines are told where it fails."""
    env = os.environ | {"PYTHONPATH": str(released / "site"), "HF_HUB_OFFLINE": "1", "COLUMNS": "300"}

    def run(folder, *words):
        all_words = [sys.executable, *words]
        done = subprocess.run(all_words, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    return run


@pytest.fixture(scope="module")
def quickstart(released, shared, run, tmp_path_factory):
    """A reader's folder after ``ofmu_pl quickstart``."""

    def make(place):
        (place / "reader").mkdir(parents=True)
        fill(place / "reader", released / "site", shared)
        run(place / "reader", "-m", "ofmu_pl", "quickstart")

    return made_once(tmp_path_factory, "quickstart", make) / "reader"


@pytest.fixture
def folder(quickstart, shared, tmp_path):
    """The same for one test: what a run writes anew replaces the links to files that all share."""
    (tmp_path / "shared").symlink_to(shared)
    return shutil.copytree(quickstart, tmp_path / "reader", symlinks=True, copy_function=os.link)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@printed("run")
def test_a_command_runs(run, folder, line):
    _, words, leaves = PRINTED[line]
    if words[0] == "purge":
        run(folder, "-m", "ofmu_pl", *TOFU)
    start = time.time()
    said = run(folder, "-m", "ofmu_pl", *words)
    if leaves is None:
        assert said.strip()
    else:
        assert [path for path in folder.glob(leaves) if path.stat().st_mtime > start], said


@pytest.mark.slow
@pytest.mark.timeout(3600)
@printed("dry")
def test_a_command_for_what_is_not_here_runs_dry(run, folder, line):
    said = run(folder, "-m", "ofmu_pl", *PRINTED[line][1])
    assert "Dry run" in said
    assert "FAULT" not in said
    assert "not tried" not in said


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(run, folder, page):
    text = "\n".join([BEFORE_THE_BLOCKS, *(text for name, text in blocks("python") if name == page)])
    (folder / "page.py").write_text(f"if __name__ == '__main__':\n    {text.replace(chr(10), chr(10) + '    ')}")
    run(folder, "page.py")
