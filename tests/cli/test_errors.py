"""Bad input and bad luck: one sentence on stderr, exit code 1 or 2, nothing overwritten."""

import errno
import io
import json
import os
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from ofmu_pl.cli import commands
from ofmu_pl.modules import OFMU
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.adapters import add_adapters
from ofmu_pl.networks.pretrained import load_pretrained
from tests.helpers.tofu_files import tofu_files

NO_SUMS = shutil.ignore_patterns("SHA256SUMS")


@pytest.fixture
def fails(fit, capsys):
    """Runs fit, expects it to fail, and returns the exit code and the one sentence."""

    def run(*options, command="fit"):
        with pytest.raises(SystemExit) as stop:
            fit(*options, command=command)
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ofmu_pl: error: ")]
        assert len(lines) == 1
        assert lines[0].endswith(".")
        return stop.value.code, lines[0]

    return run


def tofu_folder(folder, **changes):
    return ["--data", "TOFU", "--data.data", tofu_files(folder, **changes)]


@pytest.mark.parametrize(
    ("number", "readable", "said"),
    [
        (errno.EPIPE, True, "Nobody reads the output"),
        (errno.EPERM, True, "cannot be written"),
        (errno.EACCES, False, "cannot be read"),
        (errno.ENOSPC, True, "is full"),
    ],
)
def test_what_the_system_refuses_is_said_of_what_was_tried(monkeypatch, tmp_path, capsys, number, readable, said):
    """root may read everything, so a test can only pretend."""

    def command(_):
        raise OSError(number, os.strerror(number), str(tmp_path))

    monkeypatch.setitem(commands.OTHERS, "configs", command)
    monkeypatch.setattr(os, "access", lambda *_: readable)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    with pytest.raises(SystemExit) as stop:
        commands.main(["configs"])
    assert stop.value.code == 1
    assert said in capsys.readouterr().err


def full():
    torch.empty(2**60)


def short():
    raise MemoryError


@pytest.mark.parametrize("command", [full, short])
def test_a_machine_without_memory_is_one_sentence(monkeypatch, capsys, command):
    monkeypatch.setitem(commands.OTHERS, "configs", lambda _: command())
    with pytest.raises(SystemExit) as stop:
        commands.main(["configs"])
    assert stop.value.code == 1
    assert "This machine's memory is full" in capsys.readouterr().err


def test_other_errors_of_ours_keep_their_traceback(monkeypatch):
    def command(_):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setitem(commands.OTHERS, "configs", command)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        commands.main(["configs"])


@pytest.mark.parametrize("words", [["report", "m" * 300], ["purge", "m" * 300], ["report", "a/" * 2200]])
def test_names_that_are_too_long(capsys, words):
    with pytest.raises(SystemExit) as stop:
        commands.main(words)
    assert stop.value.code == 1
    assert "is too long for the disk" in capsys.readouterr().err


def test_a_terminal_that_lacks_an_arrow_costs_no_run(monkeypatch):
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="latin-1", write_through=True))
    monkeypatch.setitem(commands.OTHERS, "configs", lambda _: print("\u2191 0.5"))
    commands.main(["configs"])
    assert out.getvalue() == b"? 0.5\n"


def test_unknown_key(fails):
    code, text = fails("--model.bta", "0.5")
    assert code == 2
    assert "model.bta" in text


def test_missing_data_folder(fails, tmp_path):
    code, text = fails("--data", "TOFU", "--data.data", str(tmp_path / "nowhere"))
    assert code == 1
    assert "nowhere' does not exist" in text


def test_reference_of_another_split(fails, models, tmp_path):
    reference = models / "retrained/latest/hf"
    code, text = fails("--evaluation.reference", str(reference), "--data.forget_authors", "2")
    assert code == 1
    assert "belongs to another retain split" in text
    code, text = fails("--evaluation.reference", str(models / "target/latest/hf"))
    assert code == 1
    assert "was not trained on the retain split but on ['full']" in text
    code, text = fails("--evaluation.reference", str(tmp_path / "reference.json"))
    assert code == 1
    assert "is missing or is no file that a run wrote" in text


OTHERWISE = {
    "belongs to another forget_eval split": ("evaluation", "hashes", "forget_eval", "0"),
    "scored with dtype bfloat16, this run has float32": ("evaluation", "dtype", "bfloat16"),
    "is missing or is no file": ("scores", "forget", "answer_loss", None),
    "(date_string 1 Jan 2030, here 10 Apr 2025)": ("evaluation", "date_string", "1 Jan 2030"),
    "made with another prompt template": ("evaluation", "template_hash", "0"),
    "scored with max_new_tokens 9, this run has 8": ("evaluation", "max_new_tokens", 9),
    "not trained on the retain split but on ['full']": ("model", "streams", ["full"]),
}


@pytest.mark.parametrize("number", [3, pytest.param(len(OTHERWISE), marks=pytest.mark.slow)])
def test_reference_scored_otherwise(fails, fit, models, tmp_path, number):
    good = fit("--model.network.path", str(models / "retrained/latest/hf"), command="validate") / "reference.json"
    content = json.loads(good.read_text())
    changed = tmp_path / "reference.json"

    def refused(*path_and_value):
        edited = json.loads(json.dumps(content))
        *path, last, value = path_and_value
        target = edited
        for key in path:
            target = target[key]
        target[last] = value
        changed.write_text(json.dumps(edited))
        code, text = fails("--evaluation.reference", str(changed), command="validate")
        assert code == 1
        return text

    for sentence, path_and_value in list(OTHERWISE.items())[:number]:
        assert sentence in refused(*path_and_value)


def test_open_unlearning_log_of_other_rows_or_prompts(fails, fit, models, tmp_path):
    compatible = ["--evaluation.definition", "open_unlearning"]
    folder = fit("--model.network.path", str(models / "retrained/latest/hf"), *compatible, command="validate")
    log = json.loads((folder / "TOFU_EVAL.json").read_text())
    changed = tmp_path / "TOFU_EVAL.json"
    shutil.copy(folder / "samples.key", tmp_path)
    item = log["forget_Q_A_ROUGE"]["value_by_index"]["0"]
    for field, message in (("input", "another prompt template"), ("ground_truth", "another forget_eval split")):
        item[field], kept = "Something else", item[field]
        changed.write_text(json.dumps(log))
        item[field] = kept
        code, text = fails("--evaluation.reference", str(changed), command="validate")
        assert code == 1
        assert message in text


@pytest.mark.parametrize("name", ["nowhere/model", "./nowhere"])
def test_a_reference_that_is_not_there_is_no_model_to_unlearn(fails, name):
    code, text = fails("--evaluation.reference", name)
    assert code == 1
    assert f"'{name}' " in text
    assert "model.network.path" not in text


def test_all_nan_model(fails, models, tmp_path):
    network = load_pretrained(str(models / "target/latest/hf"), "sdpa")
    with torch.no_grad():
        network.model.norm.weight.fill_(float("nan"))
    broken = shutil.copytree((models / "target/latest/hf").resolve(), tmp_path / "broken", ignore=NO_SUMS)
    network.save_pretrained(broken)
    code, text = fails("--model.network.path", str(broken), command="validate")
    assert code == 1
    assert "losses are not finite (8 of 8 in forget" in text


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--model.network.path", "validate"),
        ("--evaluation.reference", "fit"),
        pytest.param("--model.network.path", "fit", marks=pytest.mark.slow),
        pytest.param("--evaluation.reference", "validate", marks=pytest.mark.slow),
    ],
)
def test_a_model_that_lacks_a_tensor_is_not_used(fails, models, tmp_path, command, option):
    folder = shutil.copytree((models / "retrained/latest/hf").resolve(), tmp_path / "lacking", ignore=NO_SUMS)
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("model.layers.0.mlp.up_proj.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    code, text = fails(option, str(folder), command=command)
    assert code == 1
    assert f"The weights in '{folder}' are not those" in text
    assert "missing: model.layers.0.mlp.up_proj.weight" in text


def test_missing_model_folder(fails, tmp_path):
    code, text = fails("--model.network.path", str(tmp_path / "model"), "--model.network.tokenizer", "x/y")
    assert code == 1
    assert "'x/y' has no tokenizer" in text


@pytest.mark.parametrize("command", ["plan", pytest.param("validate", marks=pytest.mark.slow)])
def test_a_model_folder_that_is_not_there_is_no_hub_id(fails, tmp_path, command):
    code, text = fails("--model.network.path", str(tmp_path / "model"), command=command)
    assert code == 1
    assert f"The folder '{tmp_path}/model' does not exist" in text


def test_a_folder_of_adapters_is_to_be_merged_first(fails, models, tmp_path):
    target, folder = (models / "target/latest/hf").resolve(), tmp_path / "adapters"
    add_adapters(load_pretrained(str(target), "sdpa"), {"r": 2}).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(target / name, folder)
    code, text = fails("--model.network.path", str(folder))
    assert code == 1
    assert "a folder of adapters (adapter_config.json) is loaded with all of them frozen: merge the adapters" in text


def test_precision_that_loses_updates(fails):
    code, text = fails("--trainer.precision", "16-true")
    assert code == 1
    assert "16-true" in text
    assert "32-true" in text


def test_nan_loss_at_step_3(fails, monkeypatch, tmp_path):
    losses, iterate, steps = CausalLM.sample_losses, OFMU.iterate, [0]

    def noting(self, batch):
        steps.append(self.run.step)
        return iterate(self, batch)

    def poisoned(self, module, batch):
        return losses(self, module, batch) * (float("nan") if steps[-1] == 3 else 1.0)

    monkeypatch.setattr(OFMU, "iterate", noting)
    monkeypatch.setattr(CausalLM, "sample_losses", poisoned)
    code, text = fails()
    assert code == 1
    assert "OFMU diverged in outer iteration 3" in text
    assert "nan" in text
    run = tmp_path / "logs/authors/ofmu/version_0"
    good = run / "checkpoints/step=1.ckpt"
    assert f"last good checkpoint is '{good}'" in text
    weights = torch.load(good, weights_only=True)["state_dict"].values()
    assert all(torch.isfinite(w).all() for w in weights)
    assert not (run / "results.json").exists()
    assert not (run.parent / "latest").exists()


def test_a_divergence_after_a_resume_names_the_good_checkpoint_of_before(fails, fit, monkeypatch):
    """In the second process, whose folder is a new one; a damaged one is not named."""
    run = fit("--trainer.max_steps", "2")
    losses = CausalLM.sample_losses
    monkeypatch.setattr(CausalLM, "sample_losses", lambda *args: losses(*args) * float("nan"))
    _, text = fails("--ckpt_path", "last")
    assert "OFMU diverged in outer iteration 3" in text
    good = run / "checkpoints/step=1.ckpt"
    assert f"last good checkpoint is '{good}'" in text
    good.write_bytes(good.read_bytes()[:-1000])
    _, text = fails("--ckpt_path", "last")
    assert "there is no good checkpoint yet" in text


@pytest.mark.parametrize("command", [pytest.param("fit", marks=pytest.mark.slow), "validate"])
def test_a_checkpoint_of_another_network(fails, fit, tmp_path, command):
    """The model at the same path is another one by now, or the command does not compare settings."""
    good = fit("--trainer.max_steps", "1") / "checkpoints/step=1.ckpt"
    content = torch.load(good, weights_only=True)
    weights = content["state_dict"]
    name = "network.model.norm.weight"
    weights[name] = weights[name].repeat(2)
    torch.save(content, shaped := tmp_path / "step=1.ckpt")
    weights["network.model.norm.weigh"] = weights.pop(name)
    torch.save(content, named := tmp_path / "step=2.ckpt")
    _, text = fails("--ckpt_path", str(shaped), command=command)
    assert f"'{shaped}' is of another network (model.norm.weight is [32] there, [16] here): give the run" in text
    _, text = fails("--ckpt_path", str(named), command=command)
    assert "(model.norm.weigh is [32] there, missing here; model.norm.weight is missing there, [16] here)" in text


def test_a_checkpoint_of_other_data(fails, fit, tmp_path):
    same = ["--trainer.max_steps", "1", "--benchmark", "authors"]
    first = fit(*tofu_folder(tmp_path / "a"), *same)
    other = tofu_folder(tmp_path / "b", retain90=[{"question": "Who else?", "answer": "Me."}])
    code, text = fails("--ckpt_path", str(first / "checkpoints/step=1.ckpt"), *other, *same)
    assert code == 1
    assert "made with other data (split 'retain'" in text


@pytest.mark.slow
def test_the_literal_algorithm_diverges_and_is_stopped(fails):
    """Uncapped rho and raw gradients: the message lists the safeguards that were off."""
    safeguards = [f"safeguards.{name}" for name in ("rho_max", "penalty_clip", "norm_floor", "inner_clip")]
    safeguards += ["forget_ceiling", "gradient_clip"]
    off = [word for name in safeguards for word in (f"--model.{name}", "null")]
    sgd = ["--model.optimizer", "torch.optim.SGD", "--model.optimizer.lr", "0.01", "--model.inner_lr", "0.01"]
    code, text = fails(*off, *sgd, "--model.gamma", "10", "--trainer.max_steps", "60")
    assert code == 1
    assert "OFMU diverged in outer iteration" in text
    assert ", ".join(f"model.{name}" for name in safeguards) in text


@pytest.mark.parametrize(
    "written", ["network, margin: float = 4.0", "network: object, margin=4.0", "network, **kwargs"]
)
def test_a_method_of_ones_own_whose_network_has_no_type_is_said(fails, tmp_path, monkeypatch, written):
    code = "import ofmu_pl\n\n\nclass Own(ofmu_pl.GradDiff):\n"
    code += f"    def __init__(self, {written}):\n        super().__init__(network)\n"
    name = f"own_{abs(hash(written))}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OFMU_PL_TRUST", name)
    code, said = fails("--model", f"{name}.Own")
    assert code == 1
    assert "network: ofmu_pl.Network" in said


def test_a_method_of_ones_own_has_options_of_its_own(fit, tmp_path, monkeypatch):
    code = "import ofmu_pl\n\n\nclass Own(ofmu_pl.GradDiff):\n"
    code += "    def __init__(self, network: ofmu_pl.Network, margin: float = 4.0, **kwargs):\n"
    code += "        super().__init__(network, **kwargs)\n        assert margin == 2.0\n"
    (tmp_path / "own_with_margin.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OFMU_PL_TRUST", "own_with_margin")
    words = ["--model", "own_with_margin.Own", "--model.margin", "2", "--method", "ofmu"]
    assert (fit(*words, "--trainer.max_steps", "1") / "results.json").is_file()


@pytest.mark.parametrize(("given", "found"), [(None, "passive"), ("active", "active")])
def test_threads_sleep_while_they_wait_unless_one_says_otherwise(monkeypatch, given, found):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    commands.main(["configs"])
    assert os.environ["OMP_WAIT_POLICY"] == found
