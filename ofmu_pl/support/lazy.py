"""Names of a package that are imported when they are asked for.

A package says its names once, in the block that type checkers read:

    if TYPE_CHECKING:
        from package.room import *
        from package.file import Name as Name
    else:
        __getattr__, __dir__, __all__ = lazy(__name__)

That block never runs: it is read as a table, and nothing is imported to read it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of a package that imports names when they are first asked for.

    Args:
        package: Name of the package, whose ``__init__.py`` runs.

    >>> find, _, shown = lazy("ofmu_pl.networks")
    >>> find("SmallCNN").__module__, shown
    ('ofmu_pl.networks.vision', ['CausalLM', 'Classifier', 'LoadedLM', 'ResNet18', 'SmallCNN'])
    """
    module, known = sys.modules[package], homes(package)

    def find(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(known[name]), name)
        setattr(module, name, value)
        return value

    return find, lambda: sorted({*vars(module), *known}), sorted(known)


def homes(package: str) -> dict[str, str]:
    """The module that has each name of a package.

    Args:
        package: Name of the package.

    >>> homes("ofmu_pl.networks")["SmallCNN"]
    'ofmu_pl.networks.vision'
    """
    return dict(_names(package))


def import_all(packages: Iterable[str]) -> None:
    """Import every name of packages: a parser knows the short names of the classes that have been imported.

    Args:
        packages: Names of the packages.
    """
    for home in {home for package in packages for home in homes(package).values()}:
        import_module(home)


def _names(module: str) -> Iterator[tuple[str, str]]:
    """Names that a source shows, with their homes: those of its block for type checkers, or else of its ``__all__``."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                assert line.module is not None
                for alias in line.names:
                    yield from _names(line.module) if alias.name == "*" else [(alias.name, line.module)]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ((name, module) for name in ast.literal_eval(node.value))
