"""The real command line, in this process, on a corpus and a network that take seconds."""

import json
from pathlib import Path

import pytest

from ofmu_pl.cli import main
from tests.helpers.workers import made_once

ROOT = Path(__file__).parent.parent.parent
TINY = """
model:
  class_path: {method}
  init_args:
    network: {{class_path: CausalLM}}
    {extra}
data:
  class_path: Authors
  init_args: {{authors: 6, forget_authors: 1, batch_size: 4}}
trainer: {{accelerator: cpu, devices: 1, max_steps: {steps}, enable_progress_bar: false}}
checkpoint: {{every_n_train_steps: 1}}
evaluation: {{max_new_tokens: 8}}
"""
NETWORK = (
    "network: {class_path: CausalLM, init_args: {config: {model_type: llama, hidden_size: 16, intermediate_size: 16, "
    "num_hidden_layers: 1, num_attention_heads: 2, tie_word_embeddings: true}}}"
)


def lasting(results):
    """What of ``results.json`` does not depend on when and where a run was made."""
    facts = {k: v for k, v in results["provenance"].items() if k not in ("git", "started_in")}
    return results | {"cost": results["cost"]["gradient_evaluations"], "provenance": facts}


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folder of a run of FineTune on the full split (target) and one on the retain split (retrained)."""
    return made_once(tmp_path_factory, "models", _train) / "authors"


def _train(logs):
    logs.mkdir(exist_ok=True)
    config = logs / "finetune.yaml"
    text = TINY.replace("network: {{class_path: CausalLM}}\n    {extra}", "@").format(method="FineTune", steps=30)
    optimizer = "optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 0.01}}"
    config.write_text(text.replace("@", f"{NETWORK}\n    {optimizer}"))
    for split, method in (("full", "target"), ("retain", "retrained")):
        main(["fit", "--config", str(config), "--logs", str(logs), "--method", method, "--model.split", split])


def the_error(capsys):
    """What a command that failed said: one sentence on stderr."""
    said = capsys.readouterr().err
    (line,) = [line for line in said.splitlines() if line.startswith("ofmu_pl: error: ")]
    assert line.endswith(".")
    assert "Traceback" not in said
    return line


def renumber(folder):
    """Let two tokens of a model's tokenizer change places."""
    path = folder / "tokenizer.json"
    words = json.loads(path.read_text())
    vocabulary = words["model"]["vocab"]
    one, two = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    path.write_text(json.dumps(words))


@pytest.fixture
def refused(fit, capsys):
    """Runs a command that must fail in one sentence; returns it."""

    def run(*options, code=1, command="fit"):
        with pytest.raises(SystemExit) as stop:
            fit(*options, command=command)
        assert stop.value.code == code
        return the_error(capsys)

    return run


@pytest.fixture
def form():
    """OFMU's options in ``fit``."""
    return "inner_steps: 2"


@pytest.fixture
def first_order():
    """As ``form``: for tests of what is about a run, whatever its iterations do."""
    return "inner_steps: 2\n    beta: 0.0\n    upper: {class_path: NoPenalty}"


@pytest.fixture
def fit(models, tmp_path, form):
    """Runs OFMU on the tiny target; returns the folder of its newest run."""
    config = tmp_path / "ofmu.yaml"
    config.write_text(TINY.format(method="OFMU", extra=form, steps=4))

    def run(*options, command="fit"):
        words = [command, "--config", str(config), "--logs", str(tmp_path / "logs")]
        words += ["--model.network.path", str(models / "target/latest/hf"), *options]
        main(words)
        versions = sorted((tmp_path / "logs/authors/ofmu").glob("version_*"), key=lambda p: int(p.name.split("_")[1]))
        return versions[-1]

    run.logs = tmp_path / "logs"
    return run
