"""Classes and functions that configurations name: of a list, and of modules that the user's own line trusts."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pkgutil import iter_modules, resolve_name
from typing import Any

from jsonargparse import Namespace, set_parsing_settings

from ofmu_pl.support.errors import UserError

PACKAGES: tuple[str, ...] = ("ofmu_pl", "torch.optim", "torch.nn", "lightning", "transformers", "peft", "bitsandbytes")
PACKAGES += ("torchvision.datasets", "torchvision.models", "torchvision.transforms")
"""Whose classes a configuration may name, and those of modules of the working folder; judged where they are defined."""
NEVER: tuple[str, ...] = ("transformers.data", "transformers.dynamic_module_utils")
NEVER += ("torchvision.datasets.utils", "torchvision.datasets.lsun")
"""Parts of these that unpickle, fetch or run what they are given."""
FUNCTIONS = ("torch.optim", "torch.nn", "torchvision.models", "torchvision.transforms", "torchvision.datasets.folder")
"""Whose functions an option takes, of these libraries; other modules are the user's own."""
TRUSTED, OWN = "OFMU_PL_TRUST", "OFMU_PL_OWN"
"""Variables by which workers know the modules that the user's line trusts, and those of the working folder."""


def import_all(packages: Iterable[str]) -> None:
    """Import every module of packages: a parser knows the short names of the classes that have been imported."""
    for package in map(import_module, packages):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)


def modules_in(variable: str) -> list[str]:
    """The modules that an environment variable lists."""
    return os.environ.get(variable, "").split()


@contextmanager
def libraries_alone() -> Iterator[None]:
    """A context for what came with a run: its values name libraries and trusted modules, none of the working folder."""
    own = [module for module in modules_in(OWN) if module not in modules_in(TRUSTED)]
    set_parsing_settings(import_path_denylist=own)
    try:
        yield
    finally:
        set_parsing_settings(import_path_allowlist=own)


def check_classes(values: object) -> None:
    """Refuse functions instead of classes, before anything is made: jsonargparse would call any.

    Raises:
        UserError: A ``class_path`` names no class, or an option what a library that is not listed would call.
    """
    if isinstance(values, Namespace):
        values = vars(values)
    if isinstance(values, list | tuple):
        for value in values:
            check_classes(value)
    if callable(values):
        _check_callable(values)
    if not isinstance(values, dict):
        return
    path = values.get("class_path")
    if path is not None and not _is_class(path):
        raise UserError(
            f"The class_path '{path}' is no class: name one that the option takes (of an optimizer, a subclass of "
            "torch.optim.Optimizer)."
        )
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


def _is_class(path: object) -> bool:
    try:
        return isinstance(resolve_name(str(path)), type)
    except (ImportError, AttributeError, ValueError):
        return False
