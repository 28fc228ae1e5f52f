"""YAML is read without aliases that would fill the memory."""

import pytest
from jsonargparse import get_loader

from ofmu_pl.cli.parser import load_yaml
from ofmu_pl.support.errors import UserError


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
    assert load_yaml("Q: {question}") == "Q: {question}", "nor is it a mapping"
    assert load_yaml("Rule: be brief") == "Rule: be brief"
    assert load_yaml(" {a: 1}") == load_yaml("a: 1") == load_yaml("# a comment\na: 1") == {"a": 1}
