"""Names of a package that are imported when they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def importer(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: it imports a name when it is first asked for, and keeps it.

    Args:
        package: Name of the package.
        homes: The module below the package that has each name.

    Returns:
        A function of the name, which raises ``AttributeError`` where there is none.

    >>> importer("ofmu_pl.support", {"UserError": "errors"})("UserError").__module__
    'ofmu_pl.support.errors'
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
