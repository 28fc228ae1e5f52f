"""What is kept by content is verified, made anew where it is damaged, and never needed."""

import copy
import importlib
import os
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from unittest import mock

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig

from ofmu_pl.data import Authors, Digits
from ofmu_pl.evaluation.originals import Original, original
from ofmu_pl.evaluation.scoring import cached_scores
from ofmu_pl.modules import reference_scores
from ofmu_pl.modules.reference_scores import reference_nll
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.vision import SmallCNN
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import DAY, HOUR, sweep
from ofmu_pl.support.kept import cache_folder, damage, keep, read_kept, write_sums
from ofmu_pl.support.provenance import code_of, config_hash, provenance
from ofmu_pl.training.export import write_model
from tests.helpers.forked_ranks import on_two_ranks
from tests.helpers.training import TINY


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OFMU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def change_a_digit(path):
    text = path.read_text()
    at = max(i for i, c in enumerate(text) if c.isdigit())
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.fixture(scope="module")
def text():
    """A tiny language model with its recipe and data."""
    recipe = CausalLM(config=TINY)
    data = Authors(authors=4, forget_authors=1, batch_size=4)
    data.setup()
    torch.manual_seed(0)
    return recipe.build(data, exact=False), recipe, data


def losses(text):
    model, recipe, data = text
    return reference_nll(model, recipe, data, "forget", "32-true")


def scores(text):
    model, _, data = text
    found = cached_scores(model, data, items=2, max_new_tokens=1)
    return torch.tensor(found["forget"].answer_loss)


def trained(_):
    how, data = Original(epochs=1, batch_size=64), Digits(forget_classes=[0], train_items=200)
    logs = Path(os.environ["OFMU_CACHE"]).parent / "logs"
    return original(how, SmallCNN(width=8), data, "retain", 0, logs, accelerator="cpu", progress=False)


@pytest.mark.parametrize("make", [losses, scores])
@pytest.mark.parametrize("harm", [change_a_digit, truncate])
def test_a_damaged_file_is_made_anew_with_one_warning(text, cache, make, harm):
    first = make(text)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    harm(path)
    with pytest.warns(UserWarning, match=re.escape(path.name)) as said:
        assert torch.equal(make(text), first)
    assert len([w for w in said if path.name in str(w.message)]) == 1
    assert path.read_bytes() == whole
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(make(text), first)


def test_what_the_first_rank_has_kept_no_rank_computes(text, cache, tmp_path):
    """A rank that computed alone would wait for the others to gather layers with it."""
    first = losses(text)

    def on_rank(rank):
        if rank:
            os.environ["OFMU_CACHE"] = str(tmp_path / "empty")
        with mock.patch.object(CausalLM, "logits", side_effect=AssertionError):
            return losses(text)

    assert all(torch.equal(found, first) for found in on_two_ranks(on_rank, tmp_path))


def test_scores_are_those_of_the_tokens_that_end_answers(text, cache, monkeypatch):
    """They are in no weight, and generations follow from them."""
    model, _, data = text
    for ends, kept in ((None, 1), (data.tokenizer.eos_token_id, 1), ([data.tokenizer.eos_token_id, 5], 2)):
        monkeypatch.setattr(model.generation_config, "eos_token_id", ends)
        scores(text)
        assert len(list(cache.iterdir())) == kept


@pytest.mark.parametrize("make", [losses, scores])
def test_every_input_of_a_score_is_in_its_key(text, cache, monkeypatch, make):
    """Each of these changes what is computed, and none is in the weights, the rows or the template's text."""
    model, _, data = text
    precision, end = torch.get_float32_matmul_precision(), data.tokenizer.eos_token

    def kept():
        make(text)
        return len(list(cache.iterdir()))

    assert kept() == kept() == 1
    monkeypatch.setattr(model.config, "_name_or_path", "elsewhere")
    monkeypatch.setattr(model.config, "use_cache", not model.config.use_cache)
    assert kept() == 1, "the same model at another place"
    monkeypatch.setattr(model.config, "rope_parameters", {**model.config.rope_parameters, "rope_theta": 5.0})
    assert kept() == 2
    monkeypatch.setattr(model.config, "hidden_act", "gelu")
    assert kept() == 3
    try:
        data.tokenizer.eos_token = data.tokenizer.convert_ids_to_tokens(7)
        assert kept() == 4
        torch.set_float32_matmul_precision("medium")
        assert kept() == 5
    finally:
        data.tokenizer.eos_token = end
        torch.set_float32_matmul_precision(precision)
    monkeypatch.setattr(reference_scores, "versions", lambda *names: {name: "0" for name in names})
    assert kept() == 6
    monkeypatch.setattr(model, "active_adapter", "other", raising=False)
    assert kept() == 7
    monkeypatch.setattr(data.encoder, "around", data.encoder.around._replace(before="Today is another day."))
    assert kept() == 8
    monkeypatch.setattr(type(model), "__module__", __name__)  # a subclass of the user's own, with a forward of its own
    assert kept() == 9


def test_own_code_is_known_by_its_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    sums = []
    for value in ("one", "three"):
        (tmp_path / "own_ofmu_pl.py").write_text(f"import torch\nclass Mine(torch.nn.Linear):\n    value = '{value}'\n")
        sys.modules.pop("own_ofmu_pl", None)
        importlib.invalidate_caches()
        mine = importlib.import_module("own_ofmu_pl").Mine(1, 1)
        sums.append(config_hash(torch.nn.Sequential(mine)))
    assert len(set(sums)) == 2
    assert code_of(torch.nn.Linear(1, 1), SmallCNN(width=8), LlamaConfig()) == {}


def hook(model):
    model.lm_head.register_forward_hook(lambda module, args, output: output * 2)


def change_a_buffer(model):
    model.model.rotary_emb.inv_freq.mul_(2)  # which is in no state dict


def replace_forward(model):
    model.model.norm.forward = lambda x: x


def switch_adapters_off(model):
    model.disable_adapter_layers()


@pytest.mark.parametrize("make", [losses, scores])
@pytest.mark.parametrize("change", [hook, change_a_buffer, replace_forward, switch_adapters_off])
def test_a_model_that_computes_otherwise_is_scored_anew(text, cache, monkeypatch, make, change):
    """Weights and settings stay as they are, so that a key of these alone gave the other model's numbers."""
    model, recipe, data = text
    model = copy.deepcopy(model)
    if change is switch_adapters_off:
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    before = make((model.train(), recipe, data))
    assert model.training
    change(model)
    after = make((model, recipe, data))
    monkeypatch.setenv("OFMU_CACHE", "")
    assert torch.equal(after, make((model, recipe, data)))
    assert not torch.equal(after, before)


def test_an_attention_kernel_rounds_and_is_no_other_model(text, cache):
    """Exact methods have eager attention, loaded models sdpa: `validate` gives what `fit` gave, and scores nothing."""
    model, recipe, data = text
    exact = copy.deepcopy(model)
    exact.set_attn_implementation("eager")
    assert model.config._attn_implementation == "sdpa"
    scores((model, recipe, data))
    scores((exact, recipe, data))
    assert len(list(cache.iterdir())) == 1
    assert exact.config._attn_implementation == "eager" != model.config._attn_implementation


@pytest.mark.parametrize("harm", [flip_a_bit, truncate, os.unlink])
def test_a_damaged_model_is_trained_anew_with_one_warning(cache, harm):
    path = trained(None)
    whole = (path / "model.safetensors").read_bytes()
    assert trained(None) == path
    harm(path / "model.safetensors")
    with pytest.warns(UserWarning, match=path.name) as said:
        assert trained(None) == path
    assert len([w for w in said if path.name in str(w.message)]) == 1
    assert (path / "model.safetensors").read_bytes() == whole
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=path, check=False).returncode == 0


@pytest.mark.parametrize("harm", [flip_a_bit, truncate, os.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "provenance.json"])
def test_a_damaged_model_is_refused_where_it_is_loaded(text, tmp_path, name, harm):
    images = Digits(forget_classes=[0], train_items=300)
    images.setup()
    for recipe, data in ((text[1], text[2]), (SmallCNN(width=8), images)):
        folder = tmp_path / recipe.modality
        write_model(folder, recipe.build(data, exact=False), recipe, data, provenance(data, streams=["full"]))
        recipe.at(str(folder)).build(data, exact=False)
        harm(folder / name)
        with pytest.raises(UserError, match=f"(damaged|lacks) .*'{name}'"):
            recipe.at(str(folder)).build(data, exact=False)
        (folder / "SHA256SUMS").unlink()  # another program's models have none
        if (name, harm) == ("model.safetensors", flip_a_bit):
            recipe.at(str(folder)).build(data, exact=False)


@pytest.mark.parametrize("make", [losses, scores, trained])
def test_a_cache_that_takes_nothing_costs_a_warning(text, cache, make):
    cache.write_text("a file is no folder, and root may write in any folder")
    with pytest.warns(UserWarning, match="OFMU_CACHE") as said:
        made = make(text)
    assert len([w for w in said if "OFMU_CACHE" in str(w.message)]) == 1
    if make is trained:
        assert made.is_relative_to(cache.parent / "logs")
        assert trained(None) == made, "found again where it was put"


def test_nothing_is_kept_where_nobody_is_at_home(monkeypatch):
    """A user whom the system does not know, as containers are often run by, has no home without HOME."""
    monkeypatch.delenv("OFMU_CACHE", raising=False)
    monkeypatch.setattr(Path, "home", mock.Mock(side_effect=RuntimeError("Could not determine home directory.")))
    assert cache_folder() is None


def test_sums_see_every_file(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a", "in/b"):
        (tmp_path / name).write_text(name)
    assert damage(tmp_path).endswith(" SHA256SUMS")
    write_sums(tmp_path)
    assert damage(tmp_path) is None
    (tmp_path / "in/b").write_text("x")
    assert re.search("'in/b' .*checksum", damage(tmp_path))
    (tmp_path / "in/b").unlink()
    assert re.search("lacks .*'in/b'", damage(tmp_path))
    (tmp_path / "SHA256SUMS").write_text("")
    assert damage(tmp_path).endswith(" SHA256SUMS")


def test_half_written_files_of_dead_processes_are_swept(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    ages = {
        f".a.json.{dead.pid}.partial": 2 * HOUR,  # to go
        f".new.json.{dead.pid}.partial": 0,  # a machine beside this one may be writing it
        f".b.json.{os.getpid()}.partial": 2 * HOUR,
        f".c.json.{os.getpid()}.partial": 2 * DAY,  # to go: another process has that number by now
        ".mine.partial": 2 * DAY,
        "d.json": 2 * DAY,
    }
    for name, age in ages.items():
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    folder = tmp_path / f".model.{dead.pid}.partial"
    folder.mkdir()
    (folder / "fresh").write_text("")
    os.utime(folder, (0, 0))
    sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == set(list(ages)[1:3]) | {".mine.partial", "d.json", folder.name}
    os.utime(folder / "fresh", (0, 0))
    os.utime(folder, (0, 0))
    keep(tmp_path / "e.json", [1.5, float("nan")])
    assert not folder.exists(), "whoever stores something sweeps"
    assert read_kept(tmp_path / "e.json") == [1.5, None]
