"""Bad input and bad luck: one sentence on stderr, exit code 1 or 2, nothing overwritten."""

import errno
import json
import os
import shutil

import pytest
import torch

from ofmu_pl.cli import commands
from ofmu_pl.networks import CausalLM
from tests.cli.conftest import the_error
from tests.helpers.tofu_files import tofu_files


def tofu_folder(folder, **changes):
    return ["--data", "TOFU", "--data.data", tofu_files(folder, **changes)]


SYSTEM = {
    "Nobody reads the output": OSError(errno.EPIPE, "", ""),
    "cannot be written": OSError(errno.EPERM, "", "/"),
    "cannot be read": OSError(errno.EACCES, "", "/"),
    "is full": OSError(errno.ENOSPC, "", "/"),
    "is too long": OSError(errno.ENAMETOOLONG, "", "m" * 300),
    "memory is full": MemoryError(),
    "This machine's": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 2**62 bytes."),
}


@pytest.mark.parametrize("said", SYSTEM)
def test_what_the_system_refuses_is_one_sentence(monkeypatch, capsys, said):
    """root may read everything, so a test can only pretend."""

    def command(_):
        raise SYSTEM[said]

    monkeypatch.setitem(commands.OTHERS, "configs", command)
    monkeypatch.setattr(os, "access", lambda *_: said != "cannot be read")
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    with pytest.raises(SystemExit) as stop:
        commands.main(["configs"])
    assert stop.value.code == 1
    assert said in the_error(capsys)


def test_other_errors_of_ours_keep_their_traceback(monkeypatch):
    def command(_):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setitem(commands.OTHERS, "configs", command)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        commands.main(["configs"])


def test_reference_of_another_split(refused, models, tmp_path):
    reference = models / "retrained/latest/hf"
    text = refused("--evaluation.reference", str(reference), "--data.forget_authors", "2")
    assert "belongs to another retain split" in text
    text = refused("--evaluation.reference", str(models / "target/latest/hf"))
    assert "was not trained on the retain split but on ['full']" in text
    text = refused("--evaluation.reference", str(tmp_path / "reference.json"))
    assert "is missing or is no file that a run wrote" in text


OTHERWISE = {
    "belongs to another forget_eval split": ("evaluation", "hashes", "forget_eval", "0"),
    "scored with dtype bfloat16, this run has float32": ("evaluation", "dtype", "bfloat16"),
    "made with another prompt template": ("evaluation", "template_hash", "0"),
}


def test_reference_scored_otherwise(refused, fit, models, tmp_path):
    good = fit("--model.network.path", str(models / "retrained/latest/hf"), command="validate") / "reference.json"
    changed = tmp_path / "reference.json"
    for sentence, (*path, last, value) in OTHERWISE.items():
        edited = target = json.loads(good.read_text())
        for key in path:
            target = target[key]
        target[last] = value
        changed.write_text(json.dumps(edited))
        assert sentence in refused("--evaluation.reference", str(changed), command="validate")


def test_open_unlearning_log_of_other_rows_or_prompts(refused, fit, models, tmp_path):
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
        assert message in refused("--evaluation.reference", str(changed), command="validate")


def test_a_reference_that_is_not_there_is_no_model_to_unlearn(refused):
    text = refused("--evaluation.reference", "./nowhere")
    assert "'./nowhere' " in text
    assert "model.network.path" not in text


def test_a_model_folder_that_is_not_there_is_no_hub_id(refused, tmp_path):
    text = refused("--model.network.path", str(tmp_path / "model"), command="plan")
    assert f"The folder '{tmp_path}/model' does not exist" in text


def test_a_divergence_after_a_resume_names_the_good_checkpoint_of_before(refused, fit, monkeypatch):
    """In the second process, whose folder is a new one; a damaged one is not named."""
    run = fit("--trainer.max_steps", "2")
    losses = CausalLM.sample_losses
    monkeypatch.setattr(CausalLM, "sample_losses", lambda *args: losses(*args) * float("nan"))
    good = run / "checkpoints/step=1.ckpt"
    assert f"last good checkpoint is '{good}'" in refused("--ckpt_path", "last")
    good.write_bytes(good.read_bytes()[:-1000])
    assert "there is no good checkpoint yet" in refused("--ckpt_path", "last")


@pytest.mark.parametrize("command", [pytest.param("fit", marks=pytest.mark.slow), "validate"])
def test_a_checkpoint_of_another_network(refused, fit, tmp_path, command):
    """The model at the same path is another one by now, or the command does not compare settings."""
    good = fit("--trainer.max_steps", "1") / "checkpoints/step=1.ckpt"
    content = torch.load(good, weights_only=True)
    weights = content["state_dict"]
    name = "network.model.norm.weight"
    weights[name] = weights[name].repeat(2)
    torch.save(content, shaped := tmp_path / "step=1.ckpt")
    weights["network.model.norm.weigh"] = weights.pop(name)
    torch.save(content, named := tmp_path / "step=2.ckpt")
    text = refused("--ckpt_path", str(shaped), command=command)
    assert f"'{shaped}' is of another network (model.norm.weight is [32] there, [16] here): give the run" in text
    text = refused("--ckpt_path", str(named), command=command)
    assert "(model.norm.weigh is [32] there, missing here; model.norm.weight is missing there, [16] here)" in text


def test_a_checkpoint_of_other_data(refused, fit, tmp_path):
    same = ["--trainer.max_steps", "1", "--benchmark", "authors"]
    first = fit(*tofu_folder(tmp_path / "a"), *same)
    other = tofu_folder(tmp_path / "b", retain90=[{"question": "Who else?", "answer": "Me."}])
    text = refused("--ckpt_path", str(first / "checkpoints/step=1.ckpt"), *other, *same)
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
def test_a_method_of_ones_own_whose_network_has_no_type_is_said(refused, tmp_path, monkeypatch, written):
    code = "import ofmu_pl\n\n\nclass Own(ofmu_pl.GradDiff):\n"
    code += f"    def __init__(self, {written}):\n        super().__init__(network)\n"
    name = f"own_{abs(hash(written))}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OFMU_PL_TRUST", name)
    said = refused("--model", f"{name}.Own")
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
