"""What README and docs tell a reader to type is read from the wheel, outside the checkout; ``test_runs.py`` runs it."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests.helpers.printed import ROOT, blocks, commands, ours
from tests.helpers.printed_files import modules

OF_THE_SHELL = [r"\. \.venv/bin/activate"]
FOR_THE_READERS = {"configs/benchmarks/NAME.yaml": "configs/benchmarks/front.yaml"}
"""What stands for a name of the reader's choice."""


@pytest.fixture
def folder(released, tmp_path):
    """A reader's folder, with the reader's modules, and the wheel's configurations where a checkout has them."""
    (tmp_path / "configs").symlink_to(released / "site/ofmu_pl/configs")
    modules(tmp_path)
    return tmp_path


def read(released, folder, words=(), texts=()):
    """What is wrong with commands and blocks of Python."""
    env = os.environ | {"PYTHONPATH": f"{released / 'site'}:{folder}"}
    reader = [sys.executable, str(ROOT / "tests/helpers/printed_reader.py")]
    given = json.dumps({"commands": list(words), "blocks": list(texts)})
    done = subprocess.run(reader, cwd=folder, env=env, input=given, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["place"].startswith(str(released))
    return found["wrong"]


def known():
    """Commands of ours, each once, without dots."""
    lines = [ours(words) for _, words in commands()]
    given = [[FOR_THE_READERS.get(word, word) for word in line if word != "..."] for line in lines if line is not None]
    return sorted(set(map(tuple, given)))


def test_every_command_is_ours_or_a_script_or_the_shells():
    for page, words in commands():
        line = " ".join(words)
        if words[:2] == ["pip", "install"]:
            extras = re.findall(r"\[([\w,]+)\]", line)
            there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert {extra for group in extras for extra in group.split(",")} <= set(there), (page, line)
        elif words[0] in ("bash", "python") and words[1].startswith("scripts/"):
            text = (ROOT / words[1]).read_text(encoding="utf-8")
            assert all(word in text for word in words[2:] if word.startswith("--")), (page, line)
        else:
            assert ours(words) is not None or any(re.fullmatch(shell, line) for shell in OF_THE_SHELL), (page, line)


def test_what_is_printed_is_there_and_a_mistake_would_be_found(released, folder):
    """Every command's words, by its own parser up to where it would begin; every name and argument of Python."""
    wrong = [["fit", "--config", "configs/text.yaml", "--data.forgett", "x"], ["report", "--foregn", "x"]]
    texts = ["import ofmu_pl\nofmu_pl.unlern(1)\nofmu_pl.OFMU(1, betta=2)"]
    texts += [text for _, text in blocks("python")]
    found = read(released, folder, [*wrong, *known()], texts)
    names = [re.search("forgett|foregn|unlern|betta|$", sentence)[0] for sentence in found]
    assert names == ["forgett", "foregn", "unlern", "betta"], found
