"""``ofmu_pl.unlearn``: the command line's numbers on a loaded model, which it leaves fit for use; and bad input."""

import copy
import gc
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from peft import LoraConfig, PeftModel, PrefixTuningConfig, get_peft_model
from torch import nn
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import ofmu_pl
from ofmu_pl.cli import main
from ofmu_pl.data.text_files import NO_HOLDOUT
from ofmu_pl.support.errors import DivergedError, UserError
from tests.helpers.citizen_rows import SIDES, files, learnt
from tests.helpers.parts import ALONG_PATH, flattening

QUIET = {"progress": False, "accelerator": "cpu"}
FAST = partial(torch.optim.AdamW, lr=1e-3)


@pytest.fixture(scope="module")
def trained():
    return learnt()


@pytest.fixture
def loaded(trained):
    """A model for each test, which may change it, and its tokenizer."""
    model, tokenizer = trained
    return copy.deepcopy(model), tokenizer


def state(model):
    return {name: x.clone() for name, x in model.state_dict().items()}


def same(one, other):
    return all(torch.equal(x, other[name]) for name, x in one.items())


def test_the_command_line_finds_the_same_numbers(loaded, tmp_path):
    model, tokenizer = loaded
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    words = ["--config", "configs/text.yaml", "--model.network.path", str(tmp_path / "model")]
    words += ["--logs", str(tmp_path / "logs"), "--trainer.accelerator", "cpu", "--trainer.max_steps", "3"]
    main(["fit", *words, "--trainer.enable_progress_bar", "false", *files(tmp_path)])
    theirs = json.loads((tmp_path / "logs/text/ofmu/latest/results.json").read_text())
    result = ofmu_pl.unlearn(*loaded, **SIDES, steps=3, **QUIET)
    for ours, key in ((result.metrics, "metrics"), (result.before, "before")):
        assert json.loads(json.dumps({name: x.as_dict() for name, x in ours.items()})) == theirs[key]
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "logs/text/ofmu/latest/hf")
    assert same(state(exported), state(model))


def test_the_model_that_was_given_has_changed_and_is_fit_for_use(trained, capsys):
    tokenizer = trained[1]
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape)).to(torch.bfloat16).train()
    before, kernel = state(model), model.config._attn_implementation
    torch.manual_seed(7)
    drawn = torch.rand(1)
    torch.manual_seed(7)
    result = ofmu_pl.unlearn(model, tokenizer, **SIDES, steps=2, method=partial(ofmu_pl.OFMU, inner_steps=1), **QUIET)
    assert result.model is model
    assert not same({k: x.float() for k, x in before.items()}, state(model))
    assert model.dtype is torch.float32
    assert model.training
    assert model.config.use_cache
    assert model.config._attn_implementation == kernel, "the exact engine has used another"
    assert all(p.grad is None for p in model.parameters())
    assert tokenizer.pad_token is None, "the data pads with a copy"
    assert torch.equal(torch.rand(1), drawn)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("make", [ofmu_pl.NPO, pytest.param(ofmu_pl.GradDiff, marks=pytest.mark.slow)])
def test_other_methods(loaded, make):
    method = partial(make, optimizer=FAST, retain_loss="kl")
    result = ofmu_pl.unlearn(*loaded, **SIDES, method=method, steps=5, batch_size=4, **QUIET)
    change = {name: x.value - result.before[name].value for name, x in result.metrics.items()}
    assert change["forget_Q_A_Prob"] < 0
    assert result.metrics["mia_loss"].target == 0.5
    assert result.metrics["mia_loss"].interval[0] <= result.metrics["mia_loss"].value
    assert result.retrained == {}


class Watched(ofmu_pl.GradDiff):
    """Keeps the distance to the frozen copy in the first iteration."""

    def after_retain(self, loss):
        self.__dict__.setdefault("first", loss)


def test_adapters_that_know_the_rows_are_what_is_unlearned(loaded):
    """The frozen copy has them: without them it would be the model before it learnt the rows."""
    base, tokenizer = loaded
    model = get_peft_model(
        base, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["c_attn"], init_lora_weights=False)
    )
    below, made = {k: x for k, x in state(base).items() if "lora" not in k}, []
    method = lambda network: made.append(Watched(network, retain_loss="kl", optimizer=FAST)) or made[0]  # noqa: E731
    adapters = {k: x for k, x in state(model).items() if "lora" in k}
    result = ofmu_pl.unlearn(model, tokenizer, **SIDES, method=method, steps=2, **QUIET)
    assert made[0].first == pytest.approx(0, abs=1e-6)
    assert isinstance(result.model, PeftModel)
    assert same(below, state(base))
    assert not same(adapters, state(model))


def test_without_holdout_rows_it_says_what_nobody_can_tell(loaded, capsys):
    rows = {name: SIDES[name] for name in ("forget", "retain")}
    with pytest.warns(UserWarning, match=re.escape(NO_HOLDOUT)):
        result = ofmu_pl.unlearn(*loaded, **rows, steps=1, **QUIET)
    assert "mia_loss" not in result.metrics
    assert result.remark == NO_HOLDOUT
    result.table()
    assert "forget_loss" in (printed := capsys.readouterr().out)
    assert NO_HOLDOUT in " ".join(printed.split())


def test_what_a_result_leaves(loaded, tmp_path):
    result = ofmu_pl.unlearn(*loaded, **SIDES, steps=1, **QUIET)
    page = result.report(tmp_path / "runs")
    made = []
    method = lambda network: made.append(ofmu_pl.GradDiff(network)) or made[0]  # noqa: E731
    ofmu_pl.unlearn(*loaded, **SIDES, steps=1, method=method, **QUIET).report(tmp_path / "runs")
    assert made[0].run.data.trainer is None, "the result holds no optimizer's state"
    assert "graddiff" in page.read_text()
    assert (tmp_path / "runs/ofmu/latest/results.json").is_file()
    assert "OFMU, 1 iterations" in repr(result)
    signed = (tmp_path / "runs/ofmu/latest/audit.html").read_text()
    assert "config.yaml" not in signed
    assert "compare" in " ".join(signed.split())
    (tmp_path / "models/other").mkdir(parents=True)
    (tmp_path / "models/file").touch()
    for taken in ("models", "models/file"):
        with pytest.raises(UserError, match=taken):
            result.save(tmp_path / taken)
    with pytest.raises(UserError, match="models/file"):
        result.report(tmp_path / "models/file")
    assert (tmp_path / "models/other").is_dir()
    result.save(tmp_path / "hf")
    folder = result.save(tmp_path / "hf")
    assert ModelCard.load(folder / "README.md").data.library_name == "transformers"
    again = AutoModelForCausalLM.from_pretrained(folder)
    ids = AutoTokenizer.from_pretrained(folder)("What does citizen 3 do?", return_tensors="pt")
    kept = result.folder
    del result
    gc.collect()
    assert not kept.exists()
    assert torch.isfinite(again(**ids).logits).all()


@pytest.mark.slow
def test_an_interrupt_in_a_notebook(trained, tmp_path):
    """Lightning would end the process, and ignore any later interrupt."""
    model, tokenizer = trained
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    code = f"""
import os, signal, tempfile, torch, ofmu_pl
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer
tempfile.tempdir = {str(tmp_path)!r}
class Interrupted(ofmu_pl.GradDiff):
    def iterate(self, batch):
        os.kill(os.getpid(), signal.SIGINT)
        return super().iterate(batch)
model, tokenizer = (x.from_pretrained("model") for x in (AutoModelForCausalLM, AutoTokenizer))
try:
    ofmu_pl.unlearn(model, tokenizer, **{SIDES!r}, method=Interrupted, steps=2, progress=False, accelerator="cpu")
except KeyboardInterrupt:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not list(Path(tempfile.tempdir).glob("ofmu_pl-*"))
    print("the notebook goes on")
"""
    env = os.environ | {"PYTHONPATH": str(Path.cwd())}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "the notebook goes on\n", done.stderr


def images(start, n):
    """Images no two of which are alike, of classes 0 and 1."""
    return [(torch.full((3, 4, 4), start + i, dtype=torch.uint8), i % 2) for i in range(n)]


IMAGES = {"forget": images(0, 6), "retain": images(20, 30), "test": images(100, 20)}
PREPARED = {"mean": [0.5] * 3, "std": [0.25] * 3}


@pytest.mark.parametrize("method", [None, partial(ofmu_pl.GradDiff, optimizer=FAST)])
def test_an_image_classifier(method):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.Softplus(), nn.Linear(8, 2))
    before = state(model)
    other = copy.deepcopy(model)
    result = ofmu_pl.unlearn(model, **IMAGES, **PREPARED, method=method, steps=3, reference=other, **QUIET)
    assert result.model is model
    assert result.retrained["RA"].value == result.before["RA"].value
    assert result.metrics["UA"].target == result.before["UA"].value, "the loaded model sets the goals"
    assert not same(before, state(model))
    assert set(result.metrics) >= {"UA", "RA", "TA"}
    assert result.metrics["RA"].n == 30


@pytest.mark.parametrize(
    ("middle", "said"),
    [
        (nn.Hardsigmoid, "hardsigmoid_backward"),  # torch lacks its second derivative
        (lambda: nn.LayerNorm(16), "LayerNorm"),
        (nn.ReLU6, None),
    ],
)
def test_a_first_run_needs_gradients_alone_and_a_flattening_one_goes_on_without_its_parts(middle, said, recwarn):
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(48, 16), middle(), nn.Linear(16, 2)]

    def told(**options):
        recwarn.clear()
        result = ofmu_pl.unlearn(nn.Sequential(*layers), **IMAGES, **PREPARED, steps=10, **QUIET, **options)
        assert result.metrics["UA"].n == 6
        return [str(w.message) for w in recwarn if re.search(r"model\.(beta|engine)", str(w.message))]

    assert told() == []
    flat = partial(ofmu_pl.OFMU, inner_steps=1, engine="autograd", upper=flattening(), **ALONG_PATH)
    assert [said in text for text in told(method=flat)] == ([True] if said else [])
    if said:  # who chooses the rates chooses the engine
        chosen = partial(ofmu_pl.OFMU, inner_steps=1, engine="autograd")
        with pytest.raises(UserError):
            ofmu_pl.unlearn(nn.Sequential(*layers), **IMAGES, method=chosen, **PREPARED, steps=1, **QUIET)


class Bees(list):
    """Images as an ``ImageFolder`` has them whose only sub-folder is ``bee``."""

    classes = ("bee",)


class Both(list):
    classes = ("ant", "bee")


def test_images_whose_classes_have_other_numbers_are_refused():
    sides = {"forget": Bees(images(0, 6)), "retain": Both(images(20, 30)), "test": Both(images(100, 20))}
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    with pytest.raises(UserError, match="`classes`"):
        ofmu_pl.unlearn(model, **sides, **PREPARED, steps=1, **QUIET)


RUNAWAY = partial(ofmu_pl.GradDiff, optimizer=partial(torch.optim.SGD, lr=1e4), gradient_clip=None)
TWO = {"test": images(0, 2)}
REFUSED = {
    "a path": ({"model": "my-model"}, "`model` is a str"),
    "no tokenizer": ({"tokenizer": None}, "`tokenizer`"),
    "a classifier without test images": ({"model": nn.Linear(2, 2)}, "`model` is a Linear"),
    "a method of its own network": ({"method": ofmu_pl.NPO(ofmu_pl.CausalLM("gpt2"))}, "`method`"),
    "no reference": ({"reference": Path("/nowhere/model")}, "`reference`"),
    "a word of the command line": ({"reference": "retrain"}, "'retrain'"),
    "no steps": ({"steps": 0}, "steps=0"),
    "no seed": ({"seed": None}, "seed=None"),
    "no metrics": ({"own_metrics": [3]}, "own_metrics is [3]"),
    "no device": ({"accelerator": "abacus"}, "'abacus'"),
    "no model at all": ({"model": 3, **TWO, **PREPARED}, "`model` is a int"),
    "not normalised": (TWO, "`mean`"),
    "holdout images": ({"holdout": images(5, 2), **TWO, **PREPARED}, "`holdout`"),
    "a loader of images": ({"test": DataLoader(images(0, 2)), **PREPARED}, "`test` DataLoader"),
    "a frozen classifier": ({"model": nn.Linear(2, 2).requires_grad_(False), **TWO, **PREPARED}, "requires_grad_"),
    "divergence": ({"method": RUNAWAY, "steps": 3}, "model.gradient_clip"),
}
"""What is given instead, and a token of the error."""


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused(loaded, case):
    model, tokenizer = loaded
    changed, token = REFUSED[case]
    before = state(model)
    given = {"model": model, "tokenizer": tokenizer, **SIDES, "steps": 1, **QUIET} | changed
    if "test" in given:
        given |= {"forget": images(0, 2), "retain": images(9, 2), "holdout": changed.get("holdout")}
    with pytest.raises((UserError, DivergedError)) as error:
        ofmu_pl.unlearn(**given)
    assert token in str(error.value)
    assert "--" not in str(error.value), "options are for the command line"
    assert case == "divergence" or same(before, state(model))


@pytest.mark.parametrize("call", [True, False])
def test_a_model_or_a_call_in_inference_mode_is_refused(loaded, call):
    model, tokenizer = loaded
    with torch.inference_mode():
        made = model if call else copy.deepcopy(model)
    with torch.inference_mode(call), pytest.raises(UserError, match="inference_mode"):
        ofmu_pl.unlearn(made, tokenizer, **SIDES, steps=1, **QUIET)


T5 = T5Config(vocab_size=300, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
PREFIX = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
UNUSABLE = {
    "T5ForConditionalGeneration": lambda model: T5ForConditionalGeneration(T5),
    "PrefixTuningConfig": lambda model: get_peft_model(model, PREFIX),
    "no weights": lambda model: model.to("meta"),
    "is_trainable=True": lambda model: model.requires_grad_(False),
}


@pytest.mark.parametrize("token", UNUSABLE)
def test_a_model_that_cannot_be_used_is_refused(loaded, token):
    model, tokenizer = loaded
    with pytest.raises(UserError, match=token):
        ofmu_pl.unlearn(UNUSABLE[token](model), tokenizer, **SIDES, steps=1, **QUIET)


def test_a_token_that_pads_and_has_no_row_is_refused(loaded):
    model, tokenizer = loaded[0], copy.deepcopy(loaded[1])
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    with pytest.raises(UserError, match=r"pads .*vocab_size"):
        ofmu_pl.unlearn(model, tokenizer, **SIDES, steps=1, **QUIET)


def test_a_loaded_model_sets_the_goals(loaded):
    other = copy.deepcopy(loaded[0])
    torch.nn.init.zeros_(next(p for name, p in other.named_parameters() if "ln_f.weight" in name))
    before = state(other)
    with pytest.warns(UserWarning, match="'a loaded model'"):
        result = ofmu_pl.unlearn(*loaded, **SIDES, steps=1, reference=other, **QUIET)
    assert result.metrics["forget_loss"].target == result.retrained["forget_loss"].value
    assert result.retrained["forget_loss"].value > 2 * result.before["forget_loss"].value, "it knows nothing"
    assert same(before, state(other))
