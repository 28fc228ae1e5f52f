"""Which files of lm-eval's tasks name Python functions, which lm-eval imports and runs (``!function module.name``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""What lm-eval reads tasks with: another reader could part from it over what a file says."""


def names_functions(path: Path, seen: frozenset[Path] = frozenset()) -> bool:
    """Whether a task's file, or one that it includes, names a function; nothing is imported.

    Args:
        path: The file; one that cannot be read names none, since lm-eval cannot read it either.
        seen: Files that include it.
    """
    path = path.expanduser().resolve()
    if path in seen:
        return False
    try:
        reader = _Reader(path.read_bytes())
        content = reader.get_single_data()
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError):
        return False
    includes = content.get("include") if isinstance(content, dict) else None
    names = includes if isinstance(includes, list) else [includes]
    return reader.functions > 0 or any(
        names_functions(path.parent / name, seen | {path}) for name in names if isinstance(name, str)
    )


class _Reader(BASE):  # type: ignore[misc]  # yaml's classes have no types
    """Reads YAML and counts the functions that it names."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self.functions = 0

    def function(self, node: yaml.Node) -> str:
        self.functions += 1
        return str(node.value)


_Reader.add_constructor("!function", _Reader.function)
