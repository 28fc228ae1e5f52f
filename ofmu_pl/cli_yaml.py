"""YAML of configurations: what would fill the memory, or never end, is refused before anything is made of it."""

from __future__ import annotations

from typing import Any

import yaml
from jsonargparse import get_loader, set_loader

from ofmu_pl.errors import UserError

LARGEST = 100_000
"""Nodes of a configuration with its aliases written out; the largest shipped one has a fiftieth."""
_load = get_loader("yaml")


def load_yaml(text: str) -> Any:
    """The value of a YAML text, as jsonargparse's own loader has it.

    Aliases share what they name until a parser copies it: ten levels of ten aliases are 10^10 nodes.

    Raises:
        UserError: It is nested too deeply, or aliases make it larger than ``LARGEST`` nodes.
        YAMLError: It is no YAML.
    """
    try:
        if "&" in text and "*" in text:
            _size(yaml.compose(text, Loader=yaml.SafeLoader), {})
        return _load(text)
    except RecursionError:
        raise UserError("The configuration is nested too deeply: write it with fewer brackets.") from None


def _size(node: Any, known: dict[int, int]) -> int:
    """Nodes from here on with every alias written out."""
    if id(node) not in known:
        known[id(node)] = LARGEST  # met again from within, it contains itself
        children = [] if isinstance(node, yaml.ScalarNode) or node is None else node.value
        pairs = isinstance(node, yaml.MappingNode)
        known[id(node)] = 1 + sum(_size(x, known) for child in children for x in (child if pairs else [child]))
        if known[id(node)] > LARGEST:
            raise UserError(
                f"The configuration has aliases (*NAME) that make it larger than {LARGEST} nodes, or that contain "
                "themselves: write out what they name."
            )
    return known[id(node)]


set_loader("yaml", load_yaml, (yaml.YAMLError,))
