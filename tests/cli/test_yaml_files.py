"""YAML is read without aliases that would fill the memory."""

import os
import time

import pytest
from jsonargparse import get_loader

from ofmu_pl.cli import main
from ofmu_pl.cli.parser import load_yaml
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.yaml_files import read_yaml
from tests.cli.conftest import the_error


@pytest.mark.parametrize("how", ["lists", "merges", "itself"])
def test_aliases_that_would_fill_the_memory(how):
    one, many = {
        "lists": ("[x, x]", "[{0}, {0}]"),
        "merges": ("{{x: 1}}", "{{<<: [{0}, {0}]}}"),
        "itself": ("[*a0]", "[{0}]"),
    }[how]
    lines = [f"a0: &a0 {one.format()}", *(f"a{i}: &a{i} {many.format(f'*a{i - 1}')}" for i in range(1, 40))]
    with pytest.raises(UserError, match="aliases .* 100000 "):
        load_yaml("\n".join(lines))


def test_other_aliases_are_followed():
    text = "a: &a {x: [1, 2]}\nb: *a\nc: {<<: *a, y: '&*'}"
    assert load_yaml(text) == {"a": {"x": [1, 2]}, "b": {"x": [1, 2]}, "c": {"x": [1, 2], "y": "&*"}}
    assert get_loader("yaml") is load_yaml
    assert load_yaml("### {question}") == "### {question}", "the value of an option is no comment"
    assert load_yaml("Q: {question}") == "Q: {question}", "nor is it a mapping"
    assert load_yaml("Rule: be brief") == "Rule: be brief"
    assert load_yaml(" {a: 1}") == load_yaml("a: 1") == load_yaml("# a comment\na: 1") == {"a": 1}


HOSTILE = {
    "aliases": lambda path: path.write_text(
        "\n".join(["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9))])
    ),
    "pipe": os.mkfifo,
    "brackets": lambda path: path.write_text("x: " + "[" * 5000 + "]" * 5000),
    "indents": lambda path: path.write_text("".join("  " * i + "a:\n" for i in range(300))),
    "numbers": lambda path: path.write_text(f"x: [{', '.join(['1'] * 12_000_000)}]"),
    "twice": lambda path: path.write_text("model: {}\nseed_everything: 1\nmodel: {a: 1}\n"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "letters": lambda path: path.write_bytes(b"a: \xff\n"),
}


@pytest.mark.parametrize("how", HOSTILE)
@pytest.mark.parametrize("command", ["fit", "benchmark", "attack", "purge"])
def test_a_file_that_would_hold_a_command_up_is_refused(how, command, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    HOSTILE[how](run / "config.yaml")
    (run / "results.json").write_text('{"schema": 1, "before": {"a": {"value": 1}}, "metrics": {}, "provenance": {}}')
    words = {"attack": ["--attacks", "[Confidence]", "--runs", str(run)], "purge": [str(run)]}
    started = time.monotonic()
    with pytest.raises(SystemExit) as stop:
        main([command, *words.get(command, ["--config", str(run / "config.yaml")])])
    assert stop.value.code in (1, 2)
    said = the_error(capsys)
    assert str(run) in said
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2", "a: {b: 1, c: 2, b: 3}", "- {x: 1}\n- {x: 1, x: 1}", "b: {<<: {a: 1}, <<: {a: 2}}"]
)
def test_a_key_that_stands_twice_is_refused(text, tmp_path):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UserError, match=r"x\.yaml.* twice .*\d"):
        read_yaml(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text("a: {x: 1}\nb: {x: 1}\n1: a\n'1': b\n")
    assert read_yaml(tmp_path / "x.yaml")["b"] == {"x": 1}
