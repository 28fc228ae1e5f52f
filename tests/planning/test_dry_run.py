"""``fit --dry_run``: what passes without weights and devices, and mistakes that are seen."""

import json
import re

import pytest
import torch
from torch import nn
from transformers import LlamaConfig

from ofmu_pl.cli import main
from ofmu_pl.data import Authors
from ofmu_pl.planning.ledger import Ledger
from ofmu_pl.planning.needs import BLIND, STEPS
from ofmu_pl.planning.unreal import pretended, unreal
from tests.helpers.training import TINY

LLAMA = json.dumps(TINY | {"max_position_embeddings": 512})
TEXT = ["--config", "configs/authors.yaml", "--model.network.path", "null", "--model.network.config", LLAMA]
TEXT += ["--model.scheduler", "null", "--data.authors", "8", "--data.forget_authors", "2", "--data.batch_size", "4"]
FSDP2 = ["-c", "configs/hardware/fsdp2_4xh100.yaml"]
RMU = [*TEXT, "-c", "configs/methods/rmu.yaml", "--model.layer"]


def test_rmu_on_four_ranks_passes(tried):
    code, verdicts, said = tried(*RMU, "model.layers.0", *FSDP2)
    assert (code, verdicts) == (0, dict.fromkeys(STEPS, "ok")), said
    assert re.search(r"\b4 \w+ by FSDP2", said)
    assert BLIND in said
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("options", "adapted", "exports"),
    [
        (FSDP2, ["q_proj", "down_proj"], "writes"),
        (["-c", "configs/methods/npo.yaml"], "all-linear", "whole"),
    ],
    ids=["shards", "whole"],
)
def test_adapters_beside_a_model_in_files_pass(tried, tmp_path, options, adapted, exports):
    data = Authors(authors=8, forget_authors=2, batch_size=4)
    data.setup()
    data.tokenizer.save_pretrained(tmp_path)
    config = LlamaConfig(**{**TINY, "vocab_size": len(data.tokenizer), "max_position_embeddings": 512})
    config.save_pretrained(tmp_path)
    words = [*TEXT, "--model.network.config", "null", "--model.network.path", str(tmp_path), *options]
    words += ["--model.network.lora", json.dumps({"r": 2, "target_modules": adapted})]
    code, verdicts, said = tried(*words, "--model.network.base_dtype", "bfloat16")
    assert (code, verdicts) == (0, dict.fromkeys(STEPS, "ok")), said
    assert exports in said


MISTAKES = {
    "no such layer": ([*RMU, "7"], "iteration", "layer '7'"),
    "batch": (  # two micro-batches of 2 on each of four ranks, which are tried, would divide
        [*TEXT, *FSDP2, "--data.batch_size", "18", "--model.micro_batch_size", "2"],
        "ranks",
        "18 retain ",
    ),
    "precision": (  # of every method: on a CPU Lightning takes bf16-mixed in its place
        [*RMU, "model.layers.0", "--trainer.precision", "16-mixed"],
        "ranks",
        "Precision 16-mixed ",
    ),
}
MORE_MISTAKES = {
    "ranks": ([*TEXT, *FSDP2, "--trainer.devices", "3"], "ranks", "data_parallel_size is 4"),
    "evaluation": (["--config", "configs/digits.yaml", "--evaluation", "TextEvaluation"], "ranks", "ImageEvaluation"),
    "positions": ([*TEXT, "--model.network.config", LLAMA.replace("512", "8")], "model", "8 positions"),
    "adapters": ([*TEXT, "--model.network.lora", '{"r": 2, "target_modules": ["no_layer"]}'], "model", "no_layer"),
    "attention": ([*TEXT, "--model.engine", "autograd", "--model.network.attention", "sdpa"], "method", "'sdpa'"),
    "no such model": (
        [*TEXT, "--model.network.config", "null", "--model.network.path", "someone/something"],
        "model",
        "'someone/something'",
    ),
}


@pytest.mark.parametrize("name", [*MISTAKES, *(pytest.param(x, marks=pytest.mark.slow) for x in MORE_MISTAKES)])
def test_a_mistake_is_seen(tried, name):
    words, step, sentence = (MISTAKES | MORE_MISTAKES)[name]
    code, verdicts, said = tried(*words)
    assert code == 1, said
    assert sentence in said
    assert [what for what, verdict in verdicts.items() if verdict == "FAULT"] == [step]


def test_the_word_belongs_to_the_command_line(tmp_path, capsys):
    (tmp_path / "dry.yaml").write_text("dry_run: true\n")
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", "configs/digits.yaml", "--config", str(tmp_path / "dry.yaml")])
    assert stop.value.code == 1
    assert "--dry_run" in " ".join(capsys.readouterr().err.split())


def test_floats_are_fake_and_whole_numbers_real():
    with torch.device("meta"):
        skeleton = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    skeleton[1].weight = skeleton[0].weight
    ledger = Ledger()
    with pretended(ledger, 2):
        network = unreal(skeleton)
        assert network[0].weight is network[1].weight
        assert ledger.live["parameters"] == 4 * 5 * 3
        rows = torch.tensor([3, 1, 4])
        assert rows.tolist() == [3, 1, 4]
        out = network(rows)
        total = out.sum()
        torch.distributed.all_reduce(total)
        assert total.item() == 1.0
        assert out.detach().numpy().shape == (3, 5)
        assert rows.max().item() == 4
        assert out[rows > 2].shape == (2, 5)
        assert out[out.sum(1) > 0].shape == (3, 5), "where a mask has no numbers, all of it is true"
    with pytest.raises(RuntimeError, match="numpy"):
        out.detach().numpy()
