"""The wheel without the packages that come with extras: all else works, and what needs one says which."""

import csv
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from PIL import Image

from ofmu_pl.data import ImageDatasets, ImageFolders
from ofmu_pl.networks import Classifier, ResNet18
from ofmu_pl.networks.pretrained import load_pretrained
from ofmu_pl.networks.rounding import round_in_blocks
from ofmu_pl.support import extras
from ofmu_pl.support.errors import UserError

EXTRAS = {"torchvision": "images", "bitsandbytes": "8bit", "tensorboard": "tensorboard"}


@pytest.fixture(scope="module")
def bare(released, tmp_path_factory):
    """Runs words of Python where the wheel and this environment's other packages are, and returns what came of it."""
    links = tmp_path_factory.mktemp("packages")
    for package in Path(torch.__file__).parents[1].iterdir():
        if not package.name.lower().startswith((*EXTRAS, "ofmu_pl", "__editable__")):
            (links / package.name).symlink_to(package)
    kept = {name: os.environ[name] for name in ("OFMU_CACHE", "OMP_NUM_THREADS") if name in os.environ}
    env = kept | {"PYTHONPATH": f"{links}:{released / 'site'}", "PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1"}

    def run(folder, *words):
        plain = [sys.executable, "-S", *words]
        done = subprocess.run(plain, cwd=folder, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.slow
def test_a_run_needs_none_of_them_and_its_scalars_are_in_a_table(bare, tmp_path):
    small = ["--data.authors", "6", "--data.forget_authors", "1", "--evaluation.max_new_tokens", "1"]
    words = ["-m", "ofmu_pl", "fit", "--config", "ofmu_pl:authors_finetune.yaml", *small, "--trainer.max_steps", "2"]
    code, _, error = bare(tmp_path, *words)
    assert code == 0, error
    assert "Warning" not in error
    run = tmp_path / "logs/authors/finetune/latest"
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["L"]] == ["1", "2"]
    assert [row["step"] for row in rows if row["metrics/forget_Q_A_Prob"]] == ["2"]
    assert not list(run.glob("events*"))


PICTURES = [(torch.zeros(3, 4, 4, dtype=torch.uint8), 0)]
PREPARED = {"mean": [0.5], "std": [0.5]}


def folders(place):
    for part in ("forget", "retain", "test"):
        (place / part / "cat").mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(place / part / "cat/1.png")
    ImageFolders(*[str(place / part) for part in ("forget", "retain", "test")], **PREPARED).setup()


@pytest.mark.parametrize(
    ("package", "ask"),
    [
        ("torchvision", lambda _: ResNet18().body(3, 10)),
        ("torchvision", lambda _: Classifier("resnet18")),
        ("torchvision", folders),
        ("torchvision", lambda _: ImageDatasets(PICTURES * 2, PICTURES, [0], **PREPARED).setup()),
        ("bitsandbytes", lambda _: round_in_blocks(torch.zeros(64), "nf4")),
        ("bitsandbytes", lambda _: load_pretrained("nowhere", None, load_in_4bit=True)),
    ],
)
def test_what_needs_one_says_which(package, ask, monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    with pytest.raises(UserError, match=rf"needs {package}, .*'ofmu_pl\[{EXTRAS[package]}\]'"):
        ask(tmp_path)


@pytest.mark.parametrize("package", EXTRAS)
def test_a_package_that_is_not_there_is_named_with_its_extra(package, monkeypatch):
    offered = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert offered["optional-dependencies"][EXTRAS[package]][0].startswith(package)
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    words = f"This needs {package}, which is not installed: pip install 'ofmu_pl[{EXTRAS[package]}]'."
    with pytest.raises(UserError, match=re.escape(words)):
        extras.extra(f"{package}.part", "This")
