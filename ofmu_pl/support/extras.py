"""Packages that not everybody needs, each with an extra of this one: ``pip install 'ofmu_pl[images]'``."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from ofmu_pl.support.errors import UserError

EXTRAS = {"torchvision": "images", "bitsandbytes": "8bit", "tensorboard": "tensorboard", "lm_eval": "tasks"}
"""The extra that each package comes with (``pyproject.toml``)."""


def installed(package: str) -> bool:
    """Whether a package is there; nothing of it is imported."""
    return find_spec(package) is not None


def missing(name: str) -> str | None:
    """How to get the package of a module or class, as a sentence ends; ``None``: it is there, or comes with no extra.

    Example:
        >>> missing("torch.optim.AdamW") is None
        True
    """
    package = name.partition(".")[0]
    if package not in EXTRAS or installed(package):
        return None
    return f"{package}, which is not installed: pip install 'ofmu_pl[{EXTRAS[package]}]'"


def extra(module: str, what: str) -> ModuleType:
    """Import a module of such a package where it is first used.

    Raises:
        UserError: The package is not there.
    """
    if lack := missing(module):
        raise UserError(f"{what} needs {lack}.")
    return import_module(module)
