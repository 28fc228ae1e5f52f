"""Bad input and bad luck: one sentence on stderr, exit code 1 or 2, nothing overwritten."""

import errno
import io
import json
import os
import re
import shutil
import sys

import pytest
import torch
from transformers.utils import is_flash_attn_2_available

from ofmu_pl.cli import commands
from ofmu_pl.cli.sentences import one_sentence
from ofmu_pl.modules import OFMU
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.pretrained import load_pretrained
from ofmu_pl.support.errors import UserError
from tests.cli.conftest import the_error
from tests.helpers.tofu_files import tofu_files

SYSTEM = {
    "output": OSError(errno.EPIPE, "", ""),
    "written": OSError(errno.EPERM, "", "/"),
    "read": OSError(errno.EACCES, "", "/"),
    "full": OSError(errno.ENOSPC, "", "/"),
    "long": OSError(errno.ENAMETOOLONG, "", "m" * 300),
    "memory": MemoryError(),
    "machine": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 2**62 bytes."),
}


@pytest.fixture
def form(first_order):
    return first_order


@pytest.mark.parametrize("said", SYSTEM)
def test_what_the_system_refuses_is_one_sentence(monkeypatch, capsys, said):
    """root may read everything, so a test can only pretend."""

    def command(_):
        raise SYSTEM[said]

    monkeypatch.setitem(commands.OTHERS, "configs", command)
    monkeypatch.setattr(os, "access", lambda *_: said != "read")
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    with pytest.raises(SystemExit) as stop:
        commands.main(["configs"])
    assert stop.value.code == 1
    line = the_error(capsys)
    assert said in line
    assert not {"logs", "--ckpt_path"} & {*line.split()}, "the command has no such options"


def test_other_errors_of_ours_keep_their_traceback(monkeypatch):
    def command(_):
        raise RuntimeError("ours")

    monkeypatch.setitem(commands.OTHERS, "configs", command)
    with pytest.raises(RuntimeError, match="ours"):
        commands.main(["configs"])


def test_reference_of_another_split(refused, models, tmp_path):
    reference = models / "retrained/latest/hf"
    text = refused("--evaluation.reference", str(reference), "--data.forget_authors", "2")
    assert re.search(f"'{reference}' .*retain .*hash", text)
    text = refused("--evaluation.reference", str(models / "target/latest/hf"))
    assert "['full']" in text
    text = refused("--evaluation.reference", str(tmp_path / "reference.json"))
    assert f"'{tmp_path}/reference.json'" in text
    assert "model.network.path" not in refused("--evaluation.reference", "./nowhere")


def test_reference_scored_otherwise(refused, fit, models, tmp_path):
    good = fit("--model.network.path", str(models / "retrained/latest/hf"), command="validate") / "reference.json"
    changed, content = tmp_path / "reference.json", json.loads(good.read_text())
    hashes = content["evaluation"]["hashes"] | {"forget_eval": "0"}
    for name, value in {"hashes": hashes, "dtype": "bfloat16", "template_hash": "0"}.items():
        facts = content["evaluation"] | {name: value}
        changed.write_text(json.dumps(content | {"evaluation": facts}))
        said = {"hashes": "forget_eval", "template_hash": "template"}.get(name, name)
        assert said in refused("--evaluation.reference", str(changed), command="validate")


def test_open_unlearning_log_of_other_rows_or_prompts(refused, fit, models, tmp_path):
    compatible = ["--evaluation.definition", "open_unlearning"]
    folder = fit("--model.network.path", str(models / "retrained/latest/hf"), *compatible, command="validate")
    log = json.loads((folder / "TOFU_EVAL.json").read_text())
    changed = tmp_path / "TOFU_EVAL.json"
    shutil.copy(folder / "samples.key", tmp_path)
    item = log["forget_Q_A_ROUGE"]["value_by_index"]["0"]
    for field, message in (("input", "template"), ("ground_truth", "forget_eval")):
        item[field], kept = "Something else", item[field]
        changed.write_text(json.dumps(log))
        item[field] = kept
        assert message in refused("--evaluation.reference", str(changed), command="validate")


def test_a_model_folder_that_is_not_there_is_no_hub_id(refused, tmp_path):
    text = refused("--model.network.path", str(tmp_path / "model"), command="plan")
    assert f"folder '{tmp_path}/model'" in text


@pytest.mark.skipif(is_flash_attn_2_available(), reason="the kernel is installed")
def test_a_kernel_that_is_not_installed_asks_for_no_other_folder(models):
    with pytest.raises(UserError, match="model.network.attention"):
        load_pretrained(str(models / "target/latest/hf"), "flash_attention_2")


def test_a_nan_loss_in_the_third_iteration_ends_a_first_run(refused, monkeypatch, fit):
    losses, iterate, steps = CausalLM.sample_losses, OFMU.iterate, []
    monkeypatch.setattr(OFMU, "iterate", lambda self, batch: [steps.append(self.run.step), iterate(self, batch)][1])
    poison = lambda: float("nan") if steps[-1:] == [3] else 1.0  # noqa: E731
    monkeypatch.setattr(CausalLM, "sample_losses", lambda *words: losses(*words) * poison())
    text, run = refused(), fit.logs / "authors/ofmu/version_0"
    good = run / "checkpoints/step=1.ckpt"
    assert "iteration 3" in text
    assert f"'{good}'" in text
    assert all(torch.isfinite(w).all() for w in torch.load(good, weights_only=True)["state_dict"].values())
    assert [p.name for p in run.parent.iterdir() if not p.name.startswith(".")] == ["version_0"]
    assert not (run / "results.json").exists()


def test_a_divergence_after_a_resume_names_the_good_checkpoint_of_before(refused, fit, monkeypatch):
    """In the second process, whose folder is a new one; a damaged one is not named."""
    run = fit("--trainer.max_steps", "2")
    losses = CausalLM.sample_losses
    monkeypatch.setattr(CausalLM, "sample_losses", lambda *args: losses(*args) * float("nan"))
    good = run / "checkpoints/step=1.ckpt"
    assert f"'{good}'" in refused("--ckpt_path", "last")
    good.write_bytes(good.read_bytes()[:-1000])
    text = refused("--ckpt_path", "last")
    assert "iteration" in text
    assert str(good) not in text


def test_a_checkpoint_of_another_network(refused, fit, tmp_path):
    """The command does not compare settings."""
    good = fit("--trainer.max_steps", "1") / "checkpoints/step=1.ckpt"
    content = torch.load(good, weights_only=True)
    weights = content["state_dict"]
    name = "network.model.norm.weight"
    weights[name] = weights[name].repeat(2)
    torch.save(content, shaped := tmp_path / "step=1.ckpt")
    weights["network.model.norm.weigh"] = weights.pop(name)
    torch.save(content, named := tmp_path / "step=2.ckpt")
    text = refused("--ckpt_path", str(shaped), command="validate")
    assert re.search(rf"'{shaped}' .*\(model\.norm\.weight .*\[32\].*\[16\]", text)
    text = refused("--ckpt_path", str(named), command="validate")
    assert re.search(rf"'{named}' .*model\.norm\.weigh .*\[32\]", text)


def test_a_checkpoint_of_other_data_or_another_measurement(refused, fit, tmp_path):
    same = ["--trainer.max_steps", "1", "--benchmark", "authors"]
    same += ["--data", "TOFU", "--data.data"]
    own = tofu_files(tmp_path / "a")
    go_on = ["--ckpt_path", str(fit(*same, own) / "checkpoints/step=1.ckpt"), *same]
    other = tofu_files(tmp_path / "b", retain90=[{"question": "Who else?", "answer": "Me."}])
    assert "(split 'retain'" in refused(*go_on, other)
    text = refused(*go_on, own, "--trainer.max_steps", "2", "--evaluation.max_new_tokens", "3")
    assert "max_new_tokens" in text


@pytest.mark.parametrize("written", ["network, margin: float = 4.0", "network, **kwargs"])
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


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, commands.SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_soon_sleep_while_they_wait_unless_one_says_otherwise(monkeypatch, given, found):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    commands.main(["configs"])
    assert os.environ.get("GOMP_SPINCOUNT") == found


def test_arrows_are_words_where_the_terminal_has_none(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with one_sentence(["report"]):
        print("utility ↑, forgotten ↓, before → after, é", flush=True)
    assert written.getvalue().strip() == b"utility up, forgotten down, before to after, ?"
