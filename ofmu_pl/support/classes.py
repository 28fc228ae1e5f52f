"""Classes that configurations name: nothing else is ever called, whoever wrote the configuration."""

from collections.abc import Iterable
from importlib import import_module
from inspect import isfunction
from pkgutil import iter_modules, resolve_name

from jsonargparse import Namespace

from ofmu_pl.support.errors import UserError

PACKAGES: tuple[str, ...] = ("ofmu_pl", "torch.optim", "torch.nn", "lightning", "transformers", "peft", "bitsandbytes")
PACKAGES += ("torchvision.datasets", "torchvision.models", "torchvision.transforms")
"""Whose classes a configuration may name, and those of modules of the working folder; judged where they are defined."""
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
        UserError: A ``class_path`` names no class, or an option a function of a library that is not listed.
    """
    if isinstance(values, Namespace):
        values = vars(values)
    if isinstance(values, list):
        for value in values:
            check_classes(value)
    if isfunction(values) and not _listed(values.__module__):
        raise UserError(
            f"The function {values.__module__}.{values.__name__} may not be named in a configuration: name one of "
            f"{', '.join(FUNCTIONS)}, or your own."
        )
    if not isinstance(values, dict):
        return
    path = values.get("class_path")
    if path is not None and not _is_class(path):
        raise UserError(
            f"The class_path '{path}' is no class: name one that the option takes (of an optimizer, a subclass of "
            "torch.optim.Optimizer)."
        )
    check_classes(list(values.values()))


def _listed(module: str) -> bool:
    libraries = {package.split(".")[0] for package in PACKAGES}
    return module.split(".")[0] not in libraries or f"{module}.".startswith(tuple(f"{name}." for name in FUNCTIONS))


def _is_class(path: object) -> bool:
    try:
        return isinstance(resolve_name(str(path)), type)
    except (ImportError, AttributeError, ValueError):
        return False
