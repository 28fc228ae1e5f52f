"""Rows that are not seen to their end: said at the start, in results.json and below the table, or refused."""

import json

import pytest
from jsonargparse import get_loader
from transformers import AutoConfig, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from ofmu_pl.cli.yaml_files import load_yaml
from ofmu_pl.data import CIFAR10, TOFU
from ofmu_pl.data.tokenizers import load_tokenizer
from ofmu_pl.networks.pretrained import load_pretrained
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import LARGEST_LINE, numbered_lines
from tests.helpers.tofu_files import tofu_files

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
    whole = {"longest": data["forget"]["read"]} | {name: data["forget"][name] for name in ("read", "top_token")}
    assert data["forget"] == {"rows": 1, "cut": 0, "left_out": 0, **whole}
    assert data["forget_eval"]["rows"] == 1
    assert "Cut at 64 tokens: 1 of 1 rows of retain" in " ".join(capsys.readouterr().out.split())


def test_a_cut_forget_row(refused, tmp_path):
    text = refused(*tofu(tmp_path, forget10=[LONG]), *SHORT)
    assert "(1 of 1 in forget; the longest has " in text
    assert "allow_cut" in text


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


def test_another_encoding_is_named(tmp_path):
    row = json.dumps({"question": "Où?", "answer": "Là."}, ensure_ascii=False) + "\n"
    path = tmp_path / "rows.jsonl"
    for encoding, words in (
        ("utf-16", "is in UTF-16 or UTF-32"),
        ("utf-16-le", "is in UTF-16 or UTF-32"),
        ("latin-1", r"Line 1 of '.*' is not in UTF-8 \(byte 0xf9 at 15; perhaps in LATIN1\)"),
    ):
        path.write_bytes(row.encode(encoding))
        with pytest.raises(UserError, match=words):
            list(numbered_lines(path))
    path.write_bytes(row.encode("utf-8-sig"))
    ((number, line),) = numbered_lines(path)
    assert (number, json.loads(line)["question"]) == (1, "Où?")


def test_a_line_that_would_fill_the_memory(tmp_path):
    path = tmp_path / "full.json"
    with path.open("wb") as file:
        file.write(b'{"question": "Who?", "answer": "Me."}\n')
        file.truncate(300 * 2**20)
    read = numbered_lines(path)
    assert next(read)[0] == 1
    with pytest.raises(UserError, match=f"Line 2 of '{path}' has more than {LARGEST_LINE} bytes"):
        next(read)


def test_a_file_where_a_folder_is_wanted(tmp_path):
    path = tmp_path / "full.json"
    path.write_text("{}")
    for attempt, option in (
        (lambda: TOFU(data=str(path)).setup(), "`data.data`"),
        (lambda: CIFAR10(data=str(path)).setup(), "`data.data`"),
        (lambda: load_tokenizer(str(path)), "`path` or `tokenizer`"),
        (lambda: load_pretrained(str(path), "sdpa"), "`path`"),
    ):
        with pytest.raises(UserError, match=f"full.json' is a file: point {option}"):
            attempt()
    with pytest.raises(UserError, match="`data.data` is None: give a folder or a hub id"):
        TOFU(data=None).setup()


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gpt_neox", "mistral", "opt"])
def test_a_model_without_a_tokenizer(tmp_path, kind):
    AutoConfig.for_model(kind).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"tokenizer.*tokenizer\.json"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("how", ["lists", "merges", "itself"])
def test_aliases_that_would_fill_the_memory(how):
    one, many = {
        "lists": ("[x, x]", "[{0}, {0}]"),
        "merges": ("{{x: 1}}", "{{<<: [{0}, {0}]}}"),
        "itself": ("[*a0]", "[{0}]"),
    }[how]
    lines = [f"a0: &a0 {one.format()}", *(f"a{i}: &a{i} {many.format(f'*a{i - 1}')}" for i in range(1, 40))]
    with pytest.raises(UserError, match="aliases .* larger than 100000 nodes"):
        load_yaml("\n".join(lines))


def test_other_aliases_are_followed():
    text = "a: &a {x: [1, 2]}\nb: *a\nc: {<<: *a, y: '&*'}"
    assert load_yaml(text) == {"a": {"x": [1, 2]}, "b": {"x": [1, 2]}, "c": {"x": [1, 2], "y": "&*"}}
    assert get_loader("yaml") is load_yaml
    assert load_yaml("### {question}") == "### {question}", "the value of an option is no comment"
    assert load_yaml("# a comment\na: 1") == {"a": 1}
