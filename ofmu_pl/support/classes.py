"""Classes and functions that configurations name: nothing that is not listed is ever called."""

import sys
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from jsonargparse import Namespace

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.trust import PACKAGES

FUNCTIONS = ("torch.optim", "torch.nn", "torchvision.models", "torchvision.transforms", "torchvision.datasets.folder")
"""Whose functions an option takes, of these libraries; other modules are the user's own."""


def import_all(packages: Iterable[str]) -> None:
    """Import every module of packages: a parser knows the short names of the classes that have been imported."""
    for package in map(import_module, packages):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)


def check_classes(values: object) -> None:
    """Refuse functions instead of classes, before anything is made: jsonargparse would call any.

    Raises:
        UserError: A ``class_path`` names no class, or an option what a library that is not listed would call.
    """
    if isinstance(values, Namespace):  # a mapping that a user wrote, such as a row, may have any names
        path = values.get("class_path")
        if path is not None and not _is_class(str(path)):
            raise UserError(
                f"The class_path '{path}' is no class: name one that the option takes (of an optimizer, a subclass of "
                "torch.optim.Optimizer)."
            )
        values = vars(values)
    if isinstance(values, list | tuple):
        for value in values:
            check_classes(value)
    if callable(values):
        _check_callable(values)
    if isinstance(values, dict):
        check_classes(list(values.values()))


def _check_callable(value: Any) -> None:
    """Refuse what is called and is defined in a library, but not where the list says; methods by their objects too."""
    if isinstance(value, partial):
        check_classes([value.func, value.args, value.keywords])
        return
    owner = getattr(value, "__self__", None)
    bound = [] if owner is None else [owner if isinstance(owner, type) else type(owner)]
    for part in [value, *bound]:
        if not _listed(part.__module__):
            name = getattr(value, "__qualname__", type(value).__qualname__)
            raise UserError(
                f"{value.__module__}.{name} may not be named in a configuration, which would call it: name a function "
                f"of {', '.join(FUNCTIONS)}, or your own."
            )


def _listed(module: str | None) -> bool:
    libraries = {package.split(".")[0] for package in PACKAGES}
    if module is None or module.split(".")[0] in libraries:
        return f"{module}.".startswith(tuple(f"{name}." for name in FUNCTIONS))
    return True


def _is_class(path: str) -> bool:
    """Whether a path leads to a class; nothing is imported, for what the parser has accepted is loaded."""
    parts = path.split(".")
    found: Any = None
    for i in range(len(parts)):
        found = sys.modules.get(".".join(parts[: i + 1]), getattr(found, parts[i], None))
    return isinstance(found, type)
