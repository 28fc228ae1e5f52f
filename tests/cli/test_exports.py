"""A run's model in the type of MODEL, and adapters in and out: both are measured as any reader would measure them."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from ofmu_pl.attacks.attacked import of_run

LORA = ("--model.network.lora", '{"r": 2}', "--model.optimizer", "torch.optim.AdamW", "--model.optimizer.lr", "0.02")


@pytest.fixture
def form(first_order):
    return first_order


@pytest.fixture
def halved(models, tmp_path):
    """The tiny target in bfloat16."""
    source, folder = models / "target/latest/hf", tmp_path / "halved"
    AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


def metrics(folder):
    found = json.loads((folder / "results.json").read_text())["metrics"]
    found.pop("gradient_alignment", None)  # by what was trained, which a reader of the folder does not know
    return {name: entry["value"] for name, entry in found.items()}


def types(folder):
    return {x.dtype for x in load_file(folder / "model.safetensors").values()}


@pytest.mark.parametrize("options", [(), LORA])
def test_a_checkpoint_in_bfloat16_comes_out_in_bfloat16_as_it_was_measured(options, fit, halved):
    keeps = ("--checkpoint.save_last", "true", "--checkpoint.every_n_train_steps", "9")  # one, at the end
    run = fit("--model.network.path", str(halved), *options, *keeps)
    assert types(run / "hf") == {torch.bfloat16}
    again = fit("--model.network.path", str(run / "hf"), command="validate")
    assert metrics(again) == pytest.approx(metrics(run), abs=0, nan_ok=True)
    # What training goes on from is not rounded.
    state = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    moved = [x for name, x in state.items() if "lora_" in name or not options]
    assert any(not torch.equal(x, x.bfloat16().float()) for x in moved)


def test_another_type_is_asked_for(fit, halved):
    run = fit("--model.network.path", str(halved), "--export.dtype", "float32")
    assert types(run / "hf") == {torch.float32}
    again = fit("--model.network.path", str(run / "hf"), command="validate")
    assert metrics(again) == pytest.approx(metrics(run), abs=0, nan_ok=True)


def test_adapters_beside_the_model_and_then_alone(fit, models, form):
    run = fit(*LORA, "--export.adapters", "beside")
    page = (run / "audit.html").read_text()
    assert "taken off again" in page
    merged = metrics(fit("--model.network.path", str(run / "hf"), command="validate"))
    alone = metrics(fit("--model.network.path", str(run / "hf-adapters"), command="validate"))
    assert merged == pytest.approx(metrics(run), rel=1e-4, nan_ok=True)
    assert alone == pytest.approx(metrics(run), rel=1e-4, nan_ok=True)
    then = fit("--model.network.path", str(run / "hf-adapters"), "--export.adapters", "instead")
    assert (then / "hf/adapter_model.safetensors").is_file()
    assert not (then / "hf/model.safetensors").exists()
    again = fit("--model.network.path", str(then / "hf"), command="validate")
    assert metrics(again) == pytest.approx(metrics(then), abs=0, nan_ok=True)
    attacked = of_run(then)
    assert all(p.requires_grad for p in attacked.build("unlearned").parameters())
    before = json.loads((then / "results.json").read_text())["before"]
    assert before["forget_Q_A_Prob"]["value"] == pytest.approx(alone["forget_Q_A_Prob"], rel=1e-6)


def test_a_merged_model_has_nothing_to_take_off(fit):
    assert "taken off again" not in (fit(*LORA) / "audit.html").read_text()


@pytest.mark.parametrize("option", [("--export.adapters", "instead"), ("--export.dtype", "int8")])
def test_what_cannot_be_written_is_refused_before_any_work(option, refused, fit):
    refused(*option, code=2 if "int8" in option else 1)
    assert not list(fit.logs.glob("authors/ofmu/version_*/checkpoints"))
