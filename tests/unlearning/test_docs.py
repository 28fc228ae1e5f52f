"""README and docs/python.md run as they are printed, and the pages' own methods do what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

import ofmu_pl
from tests.helpers.citizen_rows import SIDES, learnt
from tests.unlearning.test_unlearn import images

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/python.md"


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


BLOCKS = blocks(PAGE)
QUIET = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A reader's folder with a model and rows."""
    folder = tmp_path_factory.mktemp("reader")
    for part in learnt():
        part.save_pretrained(folder / "my-model")
    rows = [row for side in SIDES.values() for row in side]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.slow
def test_the_page_runs(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.ReLU(), nn.Linear(8, 2))
    sides = {"forget_images": images(0, 6), "retain_images": images(20, 30), "test_images": images(100, 20)}
    reader = {"classifier": classifier, **sides, "__name__": "reader"}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), reader)
    assert reader["result"].metrics["forget_worst_Prob"].n == 4
    assert {path.name for path in Path("comparison").iterdir()} == {"npo", "graddiff", "ofmu", "report"}
    said = dict(re.findall(r"^(NPO|GradDiff|OFMU) (0\.\d+)", capsys.readouterr().out, re.MULTILINE))
    assert len(said) == 3
    known = json.loads(Path("comparison/ofmu/latest/results.json").read_text())["before"]["forget_Q_A_Prob"]["value"]
    assert all(float(value) < known for value in said.values()), "each has made it forget"
    assert Path("runs/report/index.html").is_file()
    assert Path("forgotten/model.safetensors").is_file()


@pytest.mark.slow
def test_the_readme_runs(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    (block,) = blocks(ROOT / "README.md")
    assert block.count("\n") <= 10
    reader = {}
    exec(compile(block.replace('"forgotten"', repr(str(tmp_path / "forgotten"))), "README.md", "exec"), reader)
    assert reader["result"].metrics["forget_Q_A_Prob"].value < reader["result"].before["forget_Q_A_Prob"].value
    assert (tmp_path / "forgotten/model.safetensors").is_file()


def test_the_method_of_the_page_on_extending():
    """Its value is -log(1 + l), and its pull, by its gradient, is that of ascent over 1 + l."""
    (block,) = blocks(ROOT / "docs/extending.md")
    space = {"__name__": "mine"}
    exec(compile(block, "extending.md", "exec"), space)
    losses = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    recipe = SimpleNamespace(sample_losses=lambda network, part: losses)
    module = SimpleNamespace(recipe=recipe, trained=None, margin=1.0)
    values = space["LogAscent"].forget_losses(module, {})
    assert values.tolist() == pytest.approx([0.0, -0.6931471805599453, -1.3862943611198906])
    values.sum().backward()
    assert losses.grad.tolist() == pytest.approx([-1.0, -0.5, -0.25])
    assert space["LogAscent"](ofmu_pl.CausalLM("gpt2"), margin=2.0).streams == ("forget", "retain")


@pytest.fixture(scope="module")
def their_method():
    """The class that the page prints, which needs no name of ours."""
    (block,) = (block for block in BLOCKS if "class TheirMethod" in block)
    text = block.partition("\ndata = ")[0]
    assert "import ofmu_pl" not in text
    assert text.count("\n") <= 40
    space = {"__name__": "theirs"}
    exec(compile(text, str(PAGE), "exec"), space)
    return space["TheirMethod"]


def test_somebody_elses_method_under_a_plain_trainer(their_method):
    data = ofmu_pl.Digits(forget_classes=[3])
    module = their_method(nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Linear(32, 10)))
    before = pl.Trainer(**QUIET).validate(module, data, verbose=False)
    trainer = pl.Trainer(**QUIET, max_epochs=20, enable_model_summary=False)
    trainer.fit(module, data)
    after = {name: float(trainer.callback_metrics[name]) for name in ("forget", "retain")}
    assert trainer.global_step == 20 * data.iterations_per_epoch
    started = {name: value for loader in before for name, value in loader.items()}
    assert after["forget"] - after["retain"] > started["forget"] - started["retain"] + 0.1
