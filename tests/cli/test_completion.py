"""What a shell completes, asked of bash itself."""

import subprocess

import pytest

from ofmu_pl.cli import main

ASK = """
source ofmu_pl.bash
COMP_WORDS=(ofmu_pl $@); COMP_CWORD=$#
$(complete -p ofmu_pl | sed 's/.*-F \\([^ ]*\\).*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the script for bash."""
    pytest.importorskip("shtab", reason="shtab is not installed: pip install -e '.[dev]'")
    folder = tmp_path_factory.mktemp("completion")
    with pytest.MonkeyPatch.context() as patch, (folder / "ofmu_pl.bash").open("w") as file:
        patch.setattr("sys.stdout", file)
        main(["completion", "bash"])
    (folder / "ask.bash").write_text(ASK)
    return folder


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("fi", ["fit"]),
        ("rep", ["report"]),
        ("fit --trainer.max_st", ["--trainer.max_steps"]),
        ("benchmark --work", ["--workers"]),
        ("report --fo", ["--foreign"]),
        ("quickstart --se", ["--seed"]),
        ("fit --nonsense", [""]),
    ],
)
def test_commands_and_their_options_are_completed(folder, words, completed):
    ask = ["bash", "ask.bash", *words.split()]
    done = subprocess.run(ask, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == completed
