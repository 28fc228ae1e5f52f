"""Wrong words: one sentence on stderr that names the option, exit code 2; refused values: the same, exit code 1."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import yaml

import ofmu_pl
from ofmu_pl import __version__
from ofmu_pl.cli.commands import COMMANDS, main
from ofmu_pl.cli.words import as_options
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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model.help", "OFMUU"], "--model takes no 'OFMUU' (did you mean OFMU?) but one of BatchNormOnly, CEU, "),
        (["--model", "OFMUU"], "--model takes no 'OFMUU' (did you mean OFMU?) but one of BatchNormOnly, CEU, "),
        (["--model", "torch.nn.Linear"], "--model takes no 'torch.nn.Linear' but one of BatchNormOnly, "),
        pytest.param(
            ["--model", "TwoTerms"], "--model takes no 'TwoTerms' but one of BatchNormOnly, ", marks=pytest.mark.slow
        ),
        (["--model", "UnlearningModule"], "--model takes no 'UnlearningModule' but one of BatchNormOnly, "),
        pytest.param(
            ["--model", "ofmu_pl.modules.one_shot.OneShot"],
            "--model takes no 'ofmu_pl.modules.one_shot.OneShot' but ",
            marks=pytest.mark.slow,
        ),
        (["--data", "TextDataModule"], "--data takes no 'TextDataModule' but one of Authors, CIFAR10, "),
        pytest.param(
            ["--data", "PairedDataModule"],
            "--data takes no 'PairedDataModule' but one of Authors, CIFAR10, ",
            marks=pytest.mark.slow,
        ),
        (["--model.network", "Digits"], "--model.network takes no 'Digits' but one of CausalLM, Classifier, ResNet18"),
        (["--model.optimizer", "AdamZ"], "--model.optimizer takes no 'AdamZ' (did you mean torch.optim.Adam?)"),
        (["--model.inner_steps", "three"], "--model.inner_steps takes a whole number, not 'three' "),
        (["--model.gradient_clip", "x"], "--model.gradient_clip takes a number or null, not 'x' "),
        (["--model.engine", "x"], "--model.engine takes one of 'autograd', 'finite_difference', not 'x' "),
        (["--model.forget_ceiling", "x"], "takes one of 'uniform', 'holdout' or a number or null, not 'x' "),
        (["--model.network.config", "x"], "--model.network.config takes a mapping or null, not 'x' "),
        (["--model.bta", "1"], "OFMU has no option 'bta': did you mean --model.beta? "),
        (["--model.optimizer.lrr", "1"], "AdamW has no option 'lrr': did you mean --model.optimizer.lr? "),
        (["--modl", "OFMU"], "There is no option --modl: did you mean --model? "),
        (["--trainer.max_stps=3"], "There is no option --trainer.max_stps: did you mean --trainer.max_steps? "),
        pytest.param(
            ["--trainer.max_steps", "x"], "--trainer.max_steps takes a whole number, not 'x' ", marks=pytest.mark.slow
        ),
        (["--trainer.callbacks", "EarlyStopping"], "EarlyStopping needs --trainer.callbacks.monitor "),
        (["--data.batch", "3"], "Authors has no option 'batch': did you mean --data.batch_size? "),
        (["surplus"], "There is no place for 'surplus' "),
    ],
)
def test_a_wrong_word_is_named(says, words, sentence):
    code, text = says(*words)
    assert code == 2
    assert sentence in text
    assert text.endswith("(options: python -m ofmu_pl fit --help, or --model.help CLASS).")


def test_a_configuration_that_is_none(says, tmp_path):
    overlay = tmp_path / "npo.yaml"
    overlay.write_text("model: {class_path: NPO}\ndata: {class_path: Authors}\n")
    code, text = says(config=overlay)
    assert code == 2
    assert "NPO needs --model.network: give a base configuration first" in text
    overlay.write_text("model:\n  @x\n")
    text = says(config=overlay)[1]
    assert text.startswith(f"The configuration '{overlay}' is no YAML: ")
    assert text.endswith(" at line 2, column 3.")
    overlay.write_bytes("# für\nmodel: NPO\n".encode("latin-1"))
    assert f"The configuration '{overlay}' is no text in UTF-8 (" in says(config=overlay)[1]
    assert says(config=None, command="fit")[1].startswith("The command needs --data, --model: give a configuration")
    overlay.write_text("modle: {class_path: NPO}\n")
    assert says("-c", str(overlay))[1].startswith("There is no option 'modle.class_path': did you mean --model? (opt")
    assert says("-c", str(tmp_path))[1] == f"The configuration '{tmp_path}' is a folder: name one of the files in it."
    assert says("--config")[1].startswith("--config has no value: write one behind it (options: ")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("right.yml", " (did you mean {folder}/right.yaml?)"),
        ("configs/tofu.yaml", " (did you mean ofmu_pl:tofu.yaml?)"),
        ("configs/methods/np0.yaml", " (did you mean ofmu_pl:methods/npo.yaml?)"),
        ("qqq.yaml", " (`ofmu_pl configs` lists those that come with the package)"),
    ],
)
def test_a_configuration_that_is_not_there_is_named_with_what_was_meant(says, tmp_path, word, hint):
    code, text = says("-c", str(tmp_path / word))
    assert code == 2
    wanted = f"The configuration '{tmp_path / word}' does not exist{hint.format(folder=tmp_path)}: give another file."
    assert text == wanted


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("benchmark", "The command needs --name, --experiments: give a configuration, for example --config ofmu_pl:b"),
        (
            "requests",
            "for example --config ofmu_pl:requests/authors.yaml (options: python -m ofmu_pl requests --help).",
        ),
        ("attack", "The command needs --attacks: give a configuration, for example --config ofmu_pl:attacks.yaml "),
    ],
)
def test_a_command_without_its_configuration_names_one(says, command, sentence):
    code, text = says(command=command, config=None)
    assert code == 2
    assert sentence in text
    assert Path(located(re.search(r"ofmu_pl:\S+", text)[0])).is_file()


def test_a_class_of_a_file_that_is_not_found_says_where_to_run(says):
    text = says("--model", "my_methods.LogAscent")[1]
    assert text.startswith("--model names a class of the module 'my_methods', which is not there: run `python -m ")
    assert "in the folder that holds my_methods.py, or put that folder on PYTHONPATH (options: " in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--data.batch_size", "0"], "batch_size=0 is out of range: give 1 or more."),
        (["--seed_everything", "-1"], "seed_everything=-1 is out of range: give a value from 0 to 4294967295."),
        (["--model.inner_steps", "0"], "inner_steps=0 is out of range: give 1 or more."),
        (
            ["--model.optimizer", "torch.optim.SGD", "--model.optimizer.lr", "-1"],
            "The optimizer refuses its options (Invalid learning rate: -1.0): mend --model.optimizer.",
        ),
        (["--trainer.accumulate_grad_batches", "2"], "set a larger --data.batch_size"),
        (["--trainer.logger", "false"], "leaves the run without a folder for its results: leave it out"),
        (["--trainer.gradient_clip_val", "1"], "set --model.gradient_clip, a norm, instead."),
        (["--trainer.overfit_batches", "1"], "leave it out, and choose data of few rows."),
        (["--trainer.limit_train_batches", "0"], "leaves a run that does nothing: set --trainer.max_steps 0, with"),
        (["--trainer.limit_val_batches", "5"], "for text --evaluation.rows"),
        (["--checkpoint.dirpath", "elsewhere"], "say with --logs where runs and their checkpoints go."),
        (["--checkpoint.filename", "../../../up"], "has a '/', which takes checkpoints to where --ckpt_path last"),
        (["--checkpoint.filename", "/any/where/up"], "has a '/'"),
        (["--checkpoint.filename", "{step}/{inner/L_r}", "--checkpoint.auto_insert_metric_name", "false"], "has a '/'"),
        (["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.dirpath", "elsewhere"], "say with --logs where"),
        (["--trainer.callbacks+=OnExceptionCheckpoint", "--trainer.callbacks.dirpath", "x"], "say with --logs where"),
        (["--checkpoint.save_weights_only", "true"], "leaves checkpoints that no run can go on from: leave it out"),
        (
            ["--model.optimizer", "torch.optim.LBFGS"],
            "LBFGS steps by `closure`, which nothing gives it here: choose another --model.optimizer.",
        ),
        (
            ["--model.scheduler", "lightning.pytorch.cli.ReduceLROnPlateau", "--model.scheduler.monitor", "L_f"],
            "ReduceLROnPlateau steps by `metrics`, which nothing gives it here: choose another --model.scheduler.",
        ),
        (
            [
                *("--model.scheduler", "torch.optim.lr_scheduler.OneCycleLR", "--model.scheduler.max_lr", "0.1"),
                *("--model.scheduler.total_steps", "3", "--trainer.max_steps", "4"),
            ],
            "The schedule is over after 3 steps, and the run has 4 iterations: set --model.scheduler.total_steps 4, or",
        ),
        (
            ["--trainer.callbacks", "GradientBudget", "--trainer.callbacks.gradients", "-1"],
            "gradients=-1.0 is out of range: give more than 0.",
        ),
        (["--trainer.max_epochs", "-5"], "`max_epochs` must be a non-negative integer or -1. You passed in -5."),
        (["--trainer.accelerator", "abacus"], "You selected an invalid accelerator name"),
    ],
)
def test_a_refused_value_is_named(says, words, sentence):
    code, text = says(*words)
    assert code == 1
    assert sentence in text


def test_null_is_null_within_a_class_within_a_class(capsys):
    """jsonargparse 4.53 hands such a value on as the text "None"."""
    words = ["--model.network.path", "null", "--model.network.config", "null", "--model.network.tokenizer=null"]
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", str(ROOT / "configs/tofu.yaml"), *words, "--print_config"])
    assert stop.value.code == 0
    network = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]["network"]["init_args"]
    assert (network["path"], network["config"], network["tokenizer"]) == (None, None, None)


def test_plan_refuses_what_fit_refuses(says):
    code, text = says("--model.gradient_clip", "-1", command="plan")
    assert code == 1
    assert text == "gradient_clip=-1.0 is out of range: give more than 0."


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(says):
    code, text = says("--trainer.accelerator", "gpu", "--trainer.devices", "4")
    assert code == 1
    assert text == "There is no GPU that torch can use here: set --trainer.accelerator cpu."


def test_fsdp2_in_float64(says):
    fsdp2 = '{"class_path": "lightning.pytorch.strategies.ModelParallelStrategy"}'
    code, text = says("--trainer.strategy", fsdp2, "--trainer.precision", "64-true")
    assert code == 1
    assert text == "FSDP2 shards no float64: set --trainer.precision 32-true, or --trainer.strategy ddp."


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
    assert text == (
        "The first word is a command, and 'fitt' is none (did you mean fit?): give one of " + ", ".join(COMMANDS) + "."
    )
    assert "'--config' is none" in says("right.yaml", command="--config", config=None)[1]


@pytest.mark.parametrize(
    ("room", "known"),
    [("core", "`engine=finite_difference`"), ("metrics", "`attack_samples`"), ("networks", "`path=FOLDER_OR_HUB_ID`")],
)
def test_the_command_line_knows_every_argument_that_a_room_names(room, known):
    sentences = "".join(path.read_text() for path in (Path(ofmu_pl.__path__[0]) / room).glob("*.py"))
    named = re.findall(r"(?<!`)`\w+(?:=[^`]*)?`(?!`)", sentences)
    assert known in named
    assert not [words for words in named if as_options(words) == words]
    assert not re.search(r"--(model|data|trainer|evaluation)\b", sentences)
