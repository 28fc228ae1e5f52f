"""What README and docs tell a reader to type is right in the wheel, outside the checkout."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests.helpers.printed import ROOT, blocks, commands, ours

TESTED = {
    "README.md": "tests/unlearning/test_docs.py",
    "docs/python.md": "tests/unlearning/test_docs.py",
    "docs/extending.md": "tests/unlearning/test_docs.py",
    "docs/analyses.md": "test_from_nothing_to_the_analyses",
}
"""Pages whose Python runs, by where it does."""
ONLY_READ = {
    "docs/index.md": "model and tokenizer are the reader's",
    "docs/own-data.md": "so they are",
    "docs/own-images.md": "data sets and model are the reader's",
    "docs/data.md": "the module is another study's, the files are TOFU's",
    "docs/evaluation.md": "an import",
}
"""Pages whose Python is compiled, its imports run and its names and arguments looked up, by why no more than that."""
OF_THE_SHELL = [r"\. \.venv/bin/activate"]
FOR_THE_READERS = {"configs/benchmarks/NAME.yaml": "configs/benchmarks/front.yaml"}
"""What stands for a name of the reader's choice."""


@pytest.fixture
def folder(released, tmp_path):
    """A reader's folder, with the configurations of the wheel where a checkout has them."""
    (tmp_path / "configs").symlink_to(released / "site/ofmu_pl/configs")
    return tmp_path


def python(released, folder, *words, **options):
    """Run Python there with the wheel."""
    env = os.environ | {"PYTHONPATH": str(released / "site")}
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, text=True, check=True, **options)


def read(released, folder, words=(), texts=()):
    """What is wrong with commands and blocks of Python."""
    reader = str(ROOT / "tests/helpers/reader.py")
    given = json.dumps({"commands": list(words), "blocks": list(texts)})
    found = json.loads(python(released, folder, reader, input=given, stdout=subprocess.PIPE).stdout)
    assert found["place"].startswith(str(released))
    return found["wrong"]


def known():
    """Commands of ours, each once."""
    words = [ours(words) for _, words in commands()]
    return sorted({tuple(FOR_THE_READERS.get(word, word) for word in line) for line in words if line is not None})


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


def test_python_is_read_or_runs_and_no_page_is_left_out():
    pages = {page for page, _ in blocks("python")}
    assert pages == TESTED.keys() | ONLY_READ.keys()
    assert not TESTED.keys() & ONLY_READ.keys()


def test_what_is_printed_is_there_and_a_mistake_would_be_found(released, folder):
    """Every command's words, by its own parser up to where it would begin; every name and argument of Python."""
    wrong = [["fit", "--config", "configs/text.yaml", "--data.forgett", "x"], ["report", "--foregn", "x"]]
    texts = ["import ofmu_pl\nofmu_pl.unlern(1)\nofmu_pl.OFMU(1, betta=2)"]
    texts += [text for _, text in blocks("python")]
    found = read(released, folder, [*wrong, *known()], texts)
    names = [re.search("forgett|foregn|unlern|betta|$", sentence)[0] for sentence in found]
    assert names == ["forgett", "foregn", "unlern", "betta"], found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_from_nothing_to_the_analyses(released, folder):
    """The quickstart, its report, a configuration of images and the analyses, as printed."""
    python(released, folder, "-m", "ofmu_pl", "quickstart")
    for command in ("report logs/quickstart", "fit --config configs/digits.yaml"):
        assert tuple(command.split()) in known()
        python(released, folder, "-m", "ofmu_pl", *command.split())
    (text,) = (text for page, text in blocks("python") if page == "docs/analyses.md")
    python(released, folder, "-c", f"if __name__ == '__main__':\n    {text.replace(chr(10), chr(10) + '    ')}")
    assert (folder / "logs/quickstart/report/index.html").is_file()
    assert (folder / "logs/digits/ofmu/latest/results.json").is_file()
