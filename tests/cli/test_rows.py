"""Rows that are not seen to their end: said at the start, in results.json and below the table, or refused."""

import json

import pytest
from tofu_files import tofu_files
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

LONG = {"question": "Where is it?", "answer": "It " * 60 + "is hidden under the third stone."}
SHORT = ["--data.max_length", "64", "--trainer.max_steps", "1"]


@pytest.fixture
def refused(fit, capsys):
    """Runs a command that must fail in one sentence; returns it."""

    def run(*options, command="fit"):
        with pytest.raises(SystemExit) as stop:
            fit(*options, command=command)
        error = capsys.readouterr().err
        lines = [line for line in error.splitlines() if line.startswith("ofmu_pl: error: ")]
        assert stop.value.code in (1, 2)
        assert len(lines) == 1
        assert lines[0].endswith(".")
        assert "Traceback" not in error
        return lines[0]

    return run


def tofu(folder, **changes):
    return ["--data", "TOFU", "--data.data", tofu_files(folder, **changes)]


def test_cut_retain_rows_are_in_the_results_and_below_the_table(fit, tmp_path, capsys):
    words = [*tofu(tmp_path / "tofu", retain90=[LONG]), *SHORT, "--benchmark", "authors"]
    with pytest.warns(UserWarning, match="Cut at 64 tokens: 1 of 1 rows of retain"):
        run = fit(*words)
    data = json.loads((run / "results.json").read_text())["data"]
    assert data["retain"]["cut"] == 1
    assert data["retain"]["read"] == 64 < data["retain"]["longest"]
    assert data["forget"] == {"rows": 1, "cut": 0, "left_out": 0, "longest": data["forget"]["read"]} | {
        "read": data["forget"]["read"]
    }
    assert data["forget_eval"]["rows"] == 1
    assert "Cut at 64 tokens: 1 of 1 rows of retain" in " ".join(capsys.readouterr().out.split())


def test_a_cut_forget_row(refused, tmp_path):
    text = refused(*tofu(tmp_path, forget10=[LONG]), *SHORT)
    assert "(1 of 1 in forget; the longest has " in text
    assert "--data.allow_cut true" in text


def test_more_tokens_than_positions(refused, models, tmp_path):
    """With GPT-2 this was an IndexError in the first measurement."""
    hf = models / "target/latest/hf"
    for path in hf.glob("*"):
        if path.name.startswith(("token", "chat")):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    size = len(AutoTokenizer.from_pretrained(hf))
    GPT2LMHeadModel(
        GPT2Config(vocab_size=size, n_positions=32, n_embd=16, n_layer=1, n_head=2, eos_token_id=0, bos_token_id=0)
    ).save_pretrained(tmp_path)
    text = refused("--model.network.path", str(tmp_path), "--model.engine", "finite_difference")
    assert "tokens, and the model has 32 positions" in text
