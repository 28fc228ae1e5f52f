"""Rows that are not seen to their end: said at the start, in results.json and below the table, or refused."""

import json

import pytest
from jsonargparse import get_loader

from ofmu_pl.cli.yaml_files import load_yaml
from ofmu_pl.data import CIFAR10, TOFU
from ofmu_pl.data.tokenizers import load_tokenizer
from ofmu_pl.networks.pretrained import load_pretrained
from ofmu_pl.support.errors import UserError
from tests.helpers.tofu_files import tofu_files

LONG = {"question": "Where is it?", "answer": "It " * 60 + "is hidden under the third stone."}
SHORT = ["--data.max_length", "64", "--trainer.max_steps", "1"]


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
