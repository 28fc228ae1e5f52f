"""Packages that not everybody needs, each with an extra of this one: ``pip install 'ofmu_pl[images]'``."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from typing import Any

from ofmu_pl.support.errors import UserError


@cache
def extras() -> dict[str, str]:
    """The extra that each package comes with, as the metadata of this one say; empty where it is not installed."""
    try:
        lines = requires("ofmu_pl") or []
    except PackageNotFoundError:
        return {}
    found = (re.match(r"""([\w-]+)[^;[]*; extra == ['"]([\w-]+)""", line) for line in lines)
    return {line[1].replace("-", "_"): line[2] for line in found if line}


def installed(package: str) -> bool:
    """Whether a package is there; nothing of it is imported."""
    return find_spec(package) is not None


def missing(name: str) -> str | None:
    """How to get the package of a module or class, where it is one of ours and not there.

    Returns:
        The end of a sentence; ``None``: it is there, or comes with no extra.

    Example:
        >>> missing("torch.optim.AdamW") is None
        True
    """
    package = name.partition(".")[0]
    if package not in extras() or installed(package):
        return None
    return f"{package}, which is not installed: pip install 'ofmu_pl[{extras()[package]}]'"


def extra(module: str, what: str) -> Any:
    """Import a module of such a package where it is first used.

    Raises:
        UserError: The package is not there.
    """
    if lack := missing(module):
        raise UserError(f"{what} needs {lack}.")
    return import_module(module)
