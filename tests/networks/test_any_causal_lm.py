"""Architectures from the command line to the exported model: kinds of layers, adapters, shards, kernels, positions."""

import json
import re

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ofmu_pl.cli import main
from ofmu_pl.data import TextFiles
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError

LLAMA = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
POSITIONS = 48
FIXED = ("--model.rates", "null", "--model.stop_at", "null")  # of random rows some may be at their goal at once
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
TRADES = "baker tailor miner sailor".split()


def asked(numbers):
    return [{"question": f"What does citizen {i} do?", "answer": f"{i} is a {TRADES[i % 4]}."} for i in numbers]


ROWS = {"forget": asked(range(4)), "retain": asked(range(4, 12)), "holdout": asked(range(12, 16))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Makes an architecture's folder once: random weights in shards, a tokenizer without template and pad token."""
    tokenizer = train_tokenizer(row["question"] + row["answer"] for row in asked(range(100, 130)))
    tokenizer.chat_template = tokenizer.pad_token = tokenizer.bos_token = None

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
    words = ["--logs", str(tmp_path / "logs"), "--data.max_length", str(POSITIONS), "--data.batch_size", "2"]
    for name, rows in ROWS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
        words += [f"--data.{name}", str(tmp_path / f"{name}.json")]

    def run(path, *options):
        trainer = ["--trainer.accelerator", "cpu", "--trainer.max_steps", "2", "--trainer.enable_progress_bar", "false"]
        rest = ["--model.network.path", str(path), "--evaluation.max_new_tokens", "2", "--method", "tried", *trainer]
        main(["fit", "--config", "configs/text.yaml", *options, *rest, *words])
        return tmp_path / "logs/text/tried/version_0"

    return run


def losses(path):
    """Losses of the forget rows by a folder's model, and the questions' first tokens as its tokenizer has them."""
    data = TextFiles(tokenizer=str(path), batch_size=4, max_length=POSITIONS, **ROWS)
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
    run = fit(folder("gemma2"), *FIXED, "--model.engine", "autograd", "--model.rho_0", "0.25")
    assert (losses(run / "hf") - losses(folder("gemma2"))).abs().min() > 1e-6


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_documents_longer_than_the_context(kind, folder):
    """Learned positions end and rotary ones go on without a word: both are refused, and pieces that fit are read."""
    text = " ".join(row["answer"] for row in asked(range(40)))
    sides = {"forget": [{"text": text}], "retain": ROWS["retain"], "tokenizer": str(folder(kind)), "batch_size": 2}
    long, fitting = TextFiles(**sides), TextFiles(max_length=POSITIONS, **sides)
    for data in (long, fitting):
        data.setup()
    with pytest.raises(UserError, match=f"the model has {POSITIONS} positions .*`max_length={POSITIONS}` or"):
        CausalLM(str(folder(kind))).build(long, exact=False)
    network = CausalLM(str(folder(kind)))
    batch = fitting.iteration(0)["forget"][0]
    assert batch["input_ids"].shape[1] == POSITIONS
    assert network.sample_losses(network.build(fitting, exact=False), batch).isfinite().all()
