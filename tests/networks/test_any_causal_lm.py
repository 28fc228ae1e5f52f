"""Architectures from the command line to the exported model: kinds of layers, adapters, shards, kernels."""

import json
import re

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ofmu_pl.cli import main
from ofmu_pl.data import TextFiles
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.positions import require_causal
from ofmu_pl.support.errors import UserError
from tests.helpers import citizen_rows

LLAMA = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
POSITIONS = 48
FIXED = ("--model.stepper", "PlainSteps", "--model.upper", "PrintedPenalty", "--model.stop_at", "null")
"""Of random rows some may be at their goal at once."""
GROUPED = {**LLAMA, "num_key_value_heads": 1, "head_dim": 8}
SHAPES = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS},  # Conv1D, tied, learned positions
    "llama": {**LLAMA, "max_position_embeddings": POSITIONS},
    "qwen2": {**GROUPED, "max_position_embeddings": POSITIONS},  # biases
    "qwen3": {**GROUPED, "max_position_embeddings": POSITIONS},  # norms of queries and keys
    "gemma2": {**GROUPED, "sliding_window": 8, "max_position_embeddings": POSITIONS},  # capped logits, no fused kernel
    "gemma3_text": {**GROUPED, "sliding_window": 8, "max_position_embeddings": POSITIONS},
    "phi3": {**GROUPED, "max_position_embeddings": POSITIONS},  # fused projections, whose names peft does not know
    "mamba": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},  # no attention, no positions, no keys
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Makes an architecture's folder once: random weights in shards, a tokenizer without template and pad token."""
    tokenizer = citizen_rows.plain_tokenizer()

    def make(kind):
        path = tmp_path_factory.getbasetemp() / kind
        if not path.is_dir():
            ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": None}
            config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), **ids, **SHAPES[kind])
            torch.manual_seed(0)
            AutoModelForCausalLM.from_config(config).save_pretrained(path, max_shard_size="30KB")
            tokenizer.save_pretrained(path)
            assert len(list(path.glob("*.safetensors"))) > 1
        return path

    return make


@pytest.fixture
def fit(tmp_path):
    """Two iterations of the shipped configuration on files of rows; returns the run's folder."""
    words = [*citizen_rows.files(tmp_path), "--data.max_length", str(POSITIONS), "--data.batch_size", "2"]
    return lambda path, *options: citizen_rows.fit(tmp_path, *options, *words, "--model.network.path", str(path))


def losses(path):
    """Losses of the forget rows by a folder's model, and the questions' first tokens as its tokenizer has them."""
    data = TextFiles(tokenizer=str(path), batch_size=4, max_length=POSITIONS, **citizen_rows.SIDES)
    data.setup()
    (batch,) = data.iteration(0)["forget"]
    network = CausalLM(str(path))
    with torch.no_grad():
        return network.sample_losses(network.build(data, exact=False), batch)


FEW = ("gpt2", "gemma3_text")
ATTENDING = [kind for kind in SHAPES if kind != "mamba"]


@pytest.mark.parametrize("kind", [k if k in FEW else pytest.param(k, marks=pytest.mark.slow) for k in ATTENDING])
def test_unlearning_with_adapters_beside_every_linear_layer(kind, folder, fit):
    """OFMU, measured before and after; the exported model has the adapters merged and is read by transformers."""
    run = fit(folder(kind), "--model.network.lora", "{r: 2}", *FIXED, "--model.optimizer.lr", "0.1")
    results = json.loads((run / "results.json").read_text())
    after, before = losses(run / "hf"), losses(folder(kind))
    for got, entries in ((after, "metrics"), (before, "before")):
        assert results[entries]["forget_loss"]["value"] == pytest.approx(got.mean().item(), abs=1e-4)
    assert (after - before).abs().min() > 1e-3, "every row's loss moved"
    plain, again = (AutoModelForCausalLM.from_pretrained(path) for path in (folder(kind), run / "hf"))
    assert [name for name, _ in again.named_parameters()] == [name for name, _ in plain.named_parameters()]
    pairs = zip(plain.named_parameters(), again.parameters(), strict=True)
    moved = {name for (name, p), q in pairs if not torch.equal(p, q)}
    assert moved == {name for name, p in plain.named_parameters() if p.dim() == 2 and re.search(r"\.\d+\.", name)}


@pytest.mark.parametrize("kind", ["gpt2", *(pytest.param(k, marks=pytest.mark.slow) for k in ("gemma2", "mamba"))])
def test_another_method_on_the_whole_network(kind, folder, fit):
    """NPO moves every parameter, and what is tied stays tied in the export."""
    run = fit(folder(kind), "--config", "configs/methods/npo.yaml", "--model.optimizer.lr", "0.01")
    plain, again = (AutoModelForCausalLM.from_pretrained(path) for path in (folder(kind), run / "hf"))
    assert again.get_input_embeddings().weight is again.get_output_embeddings().weight
    still = {name for name, p in plain.named_parameters() if torch.equal(p, again.get_parameter(name))}
    assert not still
    assert (losses(run / "hf") - losses(folder(kind))).abs().min() > 1e-3


def test_exact_derivatives_of_capped_logits_and_windows(folder, fit):
    """Gemma 2's own attention is differentiated thrice."""
    run = fit(folder("gemma2"), *FIXED, "--model.engine", "autograd", "--model.upper.rho_0", "0.25")
    assert (losses(run / "hf") - losses(folder("gemma2"))).abs().min() > 1e-6


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SEEING = {
    "bert": SMALL,
    "roberta": SMALL,
    "gemma3_text": {**SHAPES["gemma3_text"], "use_bidirectional_attention": True},
}


def random_model(kind, shape):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, vocab_size=90, pad_token_id=0, **shape)).eval()


@pytest.mark.parametrize("kind", SEEING)
def test_a_model_that_sees_what_follows_is_refused_by_name(kind):
    model = random_model(kind, SEEING[kind])
    with pytest.raises(UserError, match=f"{type(model).__name__} .*'{kind}'"):
        require_causal(model)


@pytest.mark.parametrize("kind", [*SHAPES, "bert as a decoder"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_causal_models_are_taken(kind, dtype):
    shape = SHAPES.get(kind) or {**SMALL, "is_decoder": True}
    require_causal(random_model(kind.split()[0], shape).to(dtype))


@pytest.mark.parametrize("command", ["fit", "validate"])
def test_the_look_comes_before_any_work(tmp_path, capsys, command):
    model, tokenizer = random_model("bert", SEEING["bert"]), citizen_rows.plain_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "bert")
    words = ["--config", "configs/text.yaml", "--logs", str(tmp_path / "logs"), "--trainer.accelerator", "cpu"]
    with pytest.raises(SystemExit):
        main([command, *words, "--model.network.path", str(tmp_path / "bert"), *citizen_rows.files(tmp_path)])
    assert "BertLMHeadModel" in capsys.readouterr().err
    assert not list((tmp_path / "logs").rglob("version_*"))
