"""YAML that others may have written: one reader, which no size, depth, alias or pipe holds up."""

from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import regular

LARGEST_YAML = 2**21
"""Bytes of a file: a parser of options would take a minute for more; rows and their numbers have files of their own."""
MOST_NODES = 100_000  # nodes of a file with its aliases written out; the largest shipped one has a fiftieth
DEEPEST = 100  # collections within collections; the deepest shipped configuration has ten
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_load = get_loader("yaml")


def read_yaml(path: Path, most: int = 16 * LARGEST_YAML) -> Any:
    """Read a YAML file.

    Args:
        path: The file.
        most: Bytes that it may have; what a run has saved may be longer than what it was given.

    Raises:
        OSError: The file cannot be read.
        UserError: It is no file, no YAML in UTF-8, too large, nested too deeply, or has a key twice.
    """
    with regular(path).open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(f"'{path}' has more than {most} bytes: put rows and their numbers into files of their own.")
    try:
        text = content.decode()
        check_yaml(text, f"'{path}'")
        return _load(text)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"'{path}' is no YAML in UTF-8 ({' '.join(str(error).split())}): mend it.") from error


def check_yaml(text: str, place: str) -> None:
    """Refuse a YAML text that a parser would follow for long, or of which it would leave something out.

    Aliases share what they name until a parser copies it: ten levels of ten aliases are 10^10 nodes.

    Raises:
        YAMLError: The text is no YAML.
        UserError: The text, which is called by its ``place``, is nested too deeply, too large with its aliases written
            out, or has a key twice.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:  # what makes values of them is recursive
            raise UserError(f"{place} is nested too deeply: write it with fewer brackets.")
    _size(yaml.compose(text, Loader=_LOADER), {}, place, "*" in text)


def _size(node: yaml.Node | None, known: dict[int, int], place: str, limited: bool) -> int:
    """Nodes from here on with every alias written out; a mapping may have each key once."""
    if id(node) not in known:
        known[id(node)] = MOST_NODES  # met again from within, it contains itself
        children = [] if isinstance(node, yaml.ScalarNode) or node is None else node.value
        if isinstance(node, yaml.MappingNode):
            keys = [(key.tag, key.value) for key, _ in children if isinstance(key, yaml.ScalarNode)]
            if len(set(keys)) < len(keys):
                twice = next(value for tag, value in keys if keys.count((tag, value)) > 1)
                line = node.start_mark.line + 1
                raise UserError(f"{place} has '{twice}' twice in what begins in line {line}: take one out.")
            children = chain.from_iterable(children)  # of pairs
        known[id(node)] = 1 + sum(_size(child, known, place, limited) for child in children)
        if limited and known[id(node)] > MOST_NODES:
            raise UserError(
                f"{place} has aliases (*NAME) that make it larger than {MOST_NODES} nodes, or that contain themselves: "
                "write out what they name."
            )
    return known[id(node)]
