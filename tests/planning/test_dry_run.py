"""``fit --dry_run``: configurations that pass without weights and devices, and mistakes that are seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ofmu_pl.cli import main
from ofmu_pl.planning.course import STEPS
from ofmu_pl.planning.unreal import Unreal, pretended, unreal

ROOT = Path(__file__).parents[2]
LLAMA = (
    '{"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, '
    '"num_attention_heads": 2, "max_position_embeddings": 512}'
)
TEXT = ["--config", "configs/authors.yaml", "--model.network.path", "null", "--model.network.config", LLAMA]
TEXT += ["--model.scheduler", "null", "--data.authors", "8", "--data.forget_authors", "2", "--data.batch_size", "4"]
FSDP2 = ["-c", "configs/hardware/fsdp2_4xh100.yaml"]


@pytest.fixture
def tried(monkeypatch, capsys, tmp_path):
    """Runs the command; returns its exit code, the verdict of each step, and all that was said in one line."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def tried(*words):
        code = 0
        try:
            main(["fit", *words, "--logs", str(tmp_path / "logs"), "--dry_run"])
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in said.out.splitlines() if "│" in line]
        assert not (tmp_path / "logs").exists(), "a dry run writes nothing"
        return code, dict(rows), " ".join((said.out + said.err).split())

    return tried


PASS = {
    "digits": ["--config", "configs/digits.yaml"],
    "FSDP2": [*TEXT, *FSDP2],
    "LoRA, DDP": [
        *TEXT,
        *("-c", "configs/hardware/ddp.yaml", "--trainer.devices", "2", "-c", "configs/methods/npo.yaml"),
        *("--model.network.lora", '{"r": 2, "target_modules": "all-linear"}'),
    ],
}


@pytest.mark.parametrize("name", ["digits", *(pytest.param(x, marks=pytest.mark.slow) for x in ("FSDP2", "LoRA, DDP"))])
def test_what_a_run_would_do_passes(tried, name):
    code, verdicts, said = tried(*PASS[name])
    assert (code, verdicts) == (0, dict.fromkeys(STEPS, "ok")), said
    assert "Not seen: numbers" in said
    assert ("4 by FSDP2" in said) == (name == "FSDP2")
    assert not torch.distributed.is_initialized()


MISTAKES = {
    "no such layer": (
        [*TEXT, "-c", "configs/methods/rmu.yaml", "--model.layer", "7"],
        "iteration",
        "The network has no layer '7': set --model.layer to one of its modules",
    ),
    "ranks": (
        [*TEXT, *FSDP2, "--trainer.devices", "3"],
        "ranks",
        "data_parallel_size is 4, and the run has 3 processes",
    ),
    "precision": ([*TEXT, "--trainer.precision", "16-mixed"], "method", "Precision 16-mixed loses"),
    "positions": (
        [*TEXT, "--model.network.config", LLAMA.replace("512", "8")],
        "model",
        "the model has 8 positions",
    ),
    "adapters": (
        [*TEXT, "--model.network.lora", '{"r": 2, "target_modules": ["no_such_layer"]}'],
        "model",
        "no_such_layer",
    ),
    "evaluation": (
        ["--config", "configs/digits.yaml", "--evaluation", "TextEvaluation"],
        "ranks",
        "set --evaluation ImageEvaluation",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(tried, name):
    words, step, sentence = MISTAKES[name]
    code, verdicts, said = tried(*words)
    assert code == 1
    assert sentence in said
    assert [what for what, verdict in verdicts.items() if verdict == "FAULT"] == [step]


def test_data_that_would_be_downloaded_have_a_stand_in(tried):
    code, verdicts, said = tried(
        *("--config", "configs/wmdp.yaml", "--data.chunk", "16", "--model.inner_steps", "1"),
        *("--model.network.path", "HuggingFaceH4/zephyr-7b-beta", "--model.network.trainable", "no such parameter"),
    )
    assert (code, verdicts["data"], verdicts["model"]) == (1, "ok", "FAULT")
    assert "STAND-IN, blank rows of 16 tokens" in said


def test_the_word_belongs_to_the_command_line(tried, tmp_path):
    (tmp_path / "dry.yaml").write_text("dry_run: true\n")
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", "configs/digits.yaml", "--config", str(tmp_path / "dry.yaml")])
    assert stop.value.code == 1


def test_floats_are_fake_and_whole_numbers_real():
    with torch.device("meta"):
        skeleton = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    skeleton[1].weight = skeleton[0].weight
    with pretended(2), Unreal():
        network = unreal(skeleton)
        assert network[0].weight is network[1].weight
        rows = torch.tensor([3, 1, 4])
        assert rows.tolist() == [3, 1, 4]
        out = network(rows)
        total = out.sum()
        torch.distributed.all_reduce(total)
        assert total.item() == 1.0
        assert out.detach().numpy().shape == (3, 5)
        assert rows.max().item() == 4
    with pytest.raises(RuntimeError, match="numpy"):
        out.detach().numpy()
