"""Wrong words: one sentence on stderr that names the option, exit code 2; refused values: the same, exit code 1."""

import re
import sys
from pathlib import Path

import pytest
import torch
import yaml

from ofmu_pl import __version__
from ofmu_pl.cli.commands import COMMANDS, main
from ofmu_pl.support.shipped import located
from tests.cli.conftest import ROOT

CONFIG = """
model: {class_path: OFMU, init_args: {network: {class_path: CausalLM, init_args: {path: nowhere}}}}
data: {class_path: Authors, init_args: {authors: 6, forget_authors: 1}}
trainer: {accelerator: cpu, devices: 1, max_steps: 1}
"""


@pytest.fixture
def says(tmp_path, capsys):
    """Runs words on a configuration that is right but for them; returns the exit code and the one sentence."""
    config = tmp_path / "right.yaml"
    config.write_text(CONFIG)

    def run(*words, command="fit", config=config):
        logs = [] if config is None else ["--config", str(config), "--logs", str(tmp_path / "logs")]
        with pytest.raises(SystemExit) as stop:
            main([command, *logs, *words])
        lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Seed set to")]
        assert len(lines) == 1, lines
        assert lines[0].startswith("ofmu_pl: error: ")
        assert lines[0].endswith(".")
        assert "Union" not in lines[0]
        return stop.value.code, lines[0].removeprefix("ofmu_pl: error: ")

    return run


MISTAKES = {
    "a method that is none": (["--model", "OFMUU"], r"^model .*'OFMUU' .* OFMU\?"),
    "the help of one": (["--model.help", "OFMUU"], r"^model .*'OFMUU' .* OFMU\?"),
    "a class of another kind": (["--model", "torch.nn.Linear"], "^model .*'torch.nn.Linear'"),
    "an abstract class": (["--model", "UnlearningModule"], "^model .*'UnlearningModule'"),
    "data that are abstract": (["--data", "TextDataModule"], "^data .*'TextDataModule'"),
    "data for a network": (["--model.network", "Digits"], "^model.network .*'Digits'"),
    "an optimizer that is none": (["--model.optimizer", "AdamZ"], r" torch.optim.Adam\?"),
    "a class of no listed package": (["--model.optimizer", "os.system"], "--trust os"),
    "a module that is not found": (["--model", "my_methods.LogAscent"], " my_methods.py"),
    "text for a number": (["--model.inner_steps", "three"], "^model.inner_steps .* int, .*'three'"),
    "text for a number or null": (["--model.gradient_clip", "x"], "^model.gradient_clip .* float, null, .*'x'"),
    "text for a mapping": (["--model.network.config", "x"], "^model.network.config .* dict"),
    "text for a section": (["--export", "hf"], "^export .* name, .*'hf'"),
    "a file for a class": (["--data", "./rows.jsonl"], "^data .* name, .*'./rows.jsonl'"),
    "a list for options": (["--original", "[a]"], r"^original .* name, .*'\['a'\]'"),
    "none of the choices": (["--model.engine", "x"], r"\['autograd', 'finite_difference'\], .*'x'"),
    "text for the trainer": (["--trainer.max_steps", "x"], "^trainer.max_steps .* int, .*'x'"),
    "a method's option": (["--model.bta", "1"], r"^OFMU .* model.bta: .* model.beta\?"),
    "a rate": (["--model.learning_rate", "1"], r" model.optimizer.lr\?"),
    "an optimizer's option": (["--model.optimizer.lrr", "1"], r" model.optimizer.lr\?"),
    "the data's option": (["--data.batch", "3"], r"^Authors .* data.batch: .* data.batch_size\?"),
    "a trainer's option": (["--trainer.max_stps=3"], r" trainer.max_steps\?"),
    "a section": (["--modl", "OFMU"], r" modl: .* model\?"),
    "a callback without its argument": (["--trainer.callbacks", "EarlyStopping"], " trainer.callbacks.monitor"),
    "a word without an option": (["surplus"], " 'surplus'"),
    "an option without a value": (["--config"], "--config: "),
    "a file that is not there": (["-c", "configs/methods/np0.yaml"], r" ofmu_pl:methods/npo.yaml\?"),
    "a folder for a file": (["-c", "/"], "'/' .* folder"),
    "a file elsewhere": (["-c", "ofmu_pl:../pyproject.toml"], "leads"),
}
"""The mistakes that people make, and what of the sentence helps them."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_that_people_make_is_named(says, mistake):
    words, told = MISTAKES[mistake]
    code, text = says(*words)
    assert code == 2
    assert re.search(told, text)


def test_an_optimizers_package_that_is_not_there_is_named_with_its_extra(says, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("bitsandbytes")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    assert "ofmu_pl[8bit]" in says("--model.optimizer", "bitsandbytes.optim.AdamW8bit")[1]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"model: {class_path: NPO}\ndata: {class_path: Authors}\n", "NPO needs model.network"),
        (b"modle: {class_path: NPO}\n", " model?"),
        (b"model:\n  @x\n", "line 2, column 3"),
        (b"# f\xfcr\nmodel: NPO\n", "UTF-8"),
        (b"a: " + b"[" * 500, "nested"),
    ],
    ids=["no base", "another section", "no YAML", "another encoding", "too deep"],
)
def test_a_configuration_that_makes_no_run_is_named(says, tmp_path, content, told):
    (tmp_path / "overlay.yaml").write_bytes(content)
    code, text = says(config=tmp_path / "overlay.yaml")
    assert code == 2
    assert told in text


@pytest.mark.parametrize(
    ("command", "option"),
    [("fit", "model"), ("benchmark", "experiments"), ("requests", "requests"), ("attack", "attacks")],
)
def test_a_command_without_its_configuration_names_one(says, command, option):
    code, text = says(command=command, config=None)
    assert code == 2
    assert re.search(rf"\b{option}\b", text.partition(":")[0])
    assert Path(located(re.search(r"ofmu_pl:\S+", text)[0])).is_file()


def test_a_configuration_without_a_name_has_an_example_of_its_command(says, tmp_path):
    example = "ofmu_pl:requests/authors.yaml"
    config = yaml.safe_load(Path(located(example)).read_text())
    del config["name"]
    (unnamed := tmp_path / "unnamed.yaml").write_text(yaml.safe_dump(config))
    text = says(command="requests", config=unnamed)[1]
    assert " name:" in text
    assert example in text


SGD, ONE_CYCLE = "torch.optim.SGD", "torch.optim.lr_scheduler.OneCycleLR"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--data.batch_size 0", "batch_size=0"),
        ("--seed_everything -1", "seed_everything=-1"),
        (f"--model.optimizer {SGD} --model.optimizer.lr -1", " -1.0"),
        ("--trainer.accumulate_grad_batches 2", "data.batch_size"),
        ("--trainer.logger false", "logs"),
        ("--trainer.gradient_clip_val 1", "model.gradient_clip"),
        ("--trainer.limit_val_batches 5", "evaluation.every_n_steps"),
        ("--checkpoint.dirpath elsewhere", "checkpoint.dirpath"),
        ("--checkpoint.filename ../../../up", "checkpoint.filename"),
        ("--checkpoint.filename {step}/{inner/L_r} --checkpoint.auto_insert_metric_name false", "checkpoint.filename"),
        ("--trainer.callbacks+=ModelCheckpoint --trainer.callbacks.dirpath elsewhere", "dirpath"),
        ("--checkpoint.filename {step:/>9} --checkpoint.auto_insert_metric_name false", "checkpoint.filename"),
        (
            "--checkpoint.filename {step:c}tmp{step:c}x --checkpoint.auto_insert_metric_name false",
            "checkpoint.filename",
        ),
        ("--checkpoint.filename {step!r:/>9}", "checkpoint.filename"),
        ("--trainer.callbacks+=LearningRateFinder", "LearningRateFinder"),
        ("--trainer.callbacks+=BatchSizeFinder", "BatchSizeFinder"),
        ("--checkpoint.filename {step].abs.__doc__[34]}", "checkpoint.filename"),
        ("--checkpoint.filename {step:0900000000d}", "checkpoint.filename"),
        ("--checkpoint.filename {step:{L_r}}", "checkpoint.filename"),
        ("--checkpoint.filename /tmp/{step}", "checkpoint.filename"),
        ("--trainer.profiler lightning.pytorch.profilers.SimpleProfiler --trainer.profiler.dirpath x", "dirpath"),
        ("--trainer.profiler lightning.pytorch.profilers.PyTorchProfiler --trainer.profiler.dirpath x", "dirpath"),
        ("--trainer.profiler lightning.pytorch.profilers.AdvancedProfiler --trainer.profiler.dirpath x", "dirpath"),
        ("--trainer.callbacks+=OnExceptionCheckpoint --trainer.callbacks.dirpath x", "dirpath"),
        ("--checkpoint.save_weights_only true", "checkpoint.save_weights_only"),
        ("--model.optimizer torch.optim.LBFGS", "LBFGS"),
        (
            f"--model.scheduler {ONE_CYCLE} --model.scheduler.max_lr 0.1 --model.scheduler.total_steps 3 "
            "--trainer.max_steps 4",
            "model.scheduler.total_steps",
        ),
        ("--trainer.max_epochs -5", "max_epochs"),
        ("--trainer.accelerator abacus", "accelerator"),
    ],
)
def test_a_refused_value_is_named(says, words, named):
    code, text = says(*words.split())
    assert code == 1
    assert named in text


def test_null_is_null_within_a_class_within_a_class(capsys):
    """jsonargparse 4.53 hands such a value on as the text "None"."""
    words = ["--model.network.path", "null", "--model.network.config", "null", "--model.network.tokenizer=null"]
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", str(ROOT / "configs/tofu.yaml"), *words, "--print_config"])
    assert stop.value.code == 0
    network = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]["network"]["init_args"]
    assert (network["path"], network["config"], network["tokenizer"]) == (None, None, None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(says):
    code, text = says("--trainer.accelerator", "gpu", "--trainer.devices", "4")
    assert code == 1
    assert "trainer.accelerator" in text


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_help_lists_every_command(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    text = " ".join(capsys.readouterr().out.split())
    assert not stop.value.code
    assert text.startswith("usage: ofmu_pl ")
    for command, line in COMMANDS.items():
        assert f"{command} {line}" in text


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert capsys.readouterr().out == f"ofmu_pl {__version__}\n"
    assert not stop.value.code


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_commands_help_is_its_own(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(f"usage: ofmu_pl {command} ")
    assert COMMANDS[command].partition(" (")[0] in text  # purge says more
    assert not stop.value.code


def test_an_unknown_command(says):
    code, text = says(command="fitt", config=None)
    assert code == 2
    assert " fit?" in text
    assert "'--config'" in says("right.yaml", command="--config", config=None)[1]
