"""The methods that the pages print do what they say; ``tests/release/test_runs.py`` runs all that they print."""

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

import ofmu_pl
from ofmu_pl.data.own_tokenizer import train_tokenizer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/python.md"


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


BLOCKS = blocks(PAGE)
SHAPE = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
QUIET = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}


def printed(name):
    """A class that the page on extending prints."""
    (block,) = (block for block in blocks(ROOT / "docs/extending.md") if f"class {name}" in block)
    space = {"__name__": "mine"}
    exec(compile(block, "extending.md", "exec"), space)
    return space[name]


def trained(**parts):
    """OFMU with some parts after an iteration whose ascent goes nowhere, and its data."""
    rows = [{"question": f"Who lives in {i}?", "answer": f"Number {i} does."} for i in range(8)]
    data = ofmu_pl.TextFiles(rows[:2], rows[2:], tokenizer=train_tokenizer(row["question"] for row in rows))
    network = ofmu_pl.CausalLM(config={"model_type": "llama", **SHAPE})
    module = ofmu_pl.OFMU(network, inner_steps=1, stepper=partial(ofmu_pl.PlainSteps, 0.0), **parts)
    data.streams, data.num_batches = module.streams, module.num_batches
    pl.Trainer(**QUIET, max_steps=1, enable_model_summary=False).fit(module, data)
    return module, data


def test_the_method_of_the_page_on_extending():
    """Its value is -log(1 + l), and its pull, by its gradient, is that of ascent over 1 + l."""
    written = printed("LogAscent")
    losses = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    recipe = SimpleNamespace(sample_losses=lambda network, part: losses)
    module = SimpleNamespace(recipe=recipe, trained=None, margin=1.0)
    values = written.forget_losses(module, {})
    assert values.tolist() == pytest.approx([0.0, -0.6931471805599453, -1.3862943611198906])
    values.sum().backward()
    assert losses.grad.tolist() == pytest.approx([-1.0, -0.5, -0.25])
    assert written(ofmu_pl.CausalLM("gpt2"), margin=2.0).streams == ("forget", "retain")


def test_the_part_of_the_page_on_extending():
    """What the ascent raises is the mean of log(1 + l) over rows, without any further word."""
    part = printed("LogLoss")
    module, data = trained(lower=part)
    with torch.no_grad():
        (loss,) = (term() for term in module.lower.loss(data.collate("forget", [0, 1], 0)))
        nll, targets = module.token_losses(data.collate("forget", [0, 1], 0))
    by_row = nll.sum(1) / (targets >= 0).sum(1)
    torch.testing.assert_close(loss, by_row.log1p().mean())


def test_the_penalty_of_the_page_on_extending():
    """Its direction is g_r + 2 weight H_f g_f, by autograd of |g_f|^2 at the same weights."""
    part = printed("SlopePenalty")
    module, data = trained(beta=0.0, upper=partial(part, weight=0.5))
    assert module.upper.acted == 1
    batch = data.iteration(1)
    direction, _ = module.iterate(batch)
    weights = [p for p in module.trained.parameters() if p.requires_grad]
    forget, retain = (sum(term() for term in module.loss(batch[side][-1])) for side in ("forget", "retain"))
    slope = torch.autograd.grad(forget, weights, create_graph=True)
    penalty = torch.autograd.grad(sum((g**2).sum() for g in slope), weights)
    wanted = [g + 0.5 * p for g, p in zip(torch.autograd.grad(retain, weights), penalty, strict=True)]
    torch.testing.assert_close(direction, wanted, rtol=1e-3, atol=1e-6)


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
