"""Configurations that others wrote are read and never run: a list says which classes they may name."""

import os
from importlib.util import find_spec
from pathlib import Path

from jsonargparse import set_parsing_settings

from ofmu_pl.support.classes import PACKAGES
from ofmu_pl.support.errors import UserError

TRUST = "--trust"
NEVER = ("transformers.data", "transformers.dynamic_module_utils", "torchvision.datasets.utils")
"""Parts of these that unpickle, fetch or run what they are given."""
_TRUSTED = "OFMU_PL_TRUST"


def without_trust(words: list[str]) -> list[str]:
    """Take ``--trust MODULE`` out of a command's words; the processes that it starts trust these modules, too."""
    left, trusted = [], []
    rest = iter(words)
    for word in rest:
        option, _, module = word.partition("=")
        if option != TRUST:
            left.append(word)
            continue
        module = module or next(rest, "")
        if not all(part.isidentifier() for part in module.split(".")):
            raise UserError(f"{TRUST} takes a module, such as {TRUST} my_package.datasets, not '{module}'.")
        trusted.append(module)
    os.environ[_TRUSTED] = " ".join([*os.environ.get(_TRUSTED, "").split(), *trusted])
    return left


def restrict_imports() -> None:
    """Let values of configurations name what is listed alone, and make no objects where an option has no type."""
    allowed = [*PACKAGES, *_of_the_working_folder(), *os.environ.get(_TRUSTED, "").split()]
    set_parsing_settings(
        import_path_denylist=["*", *NEVER], import_path_allowlist=allowed, instantiate_subclass_spec_in_any=False
    )


def _of_the_working_folder() -> list[str]:
    """Modules and packages of the working folder that Python would import from there."""
    here = Path.cwd()
    names = {path.stem for path in here.glob("*.py")} | {path.parent.name for path in here.glob("*/*.py")}
    names.discard("__main__")  # whose own specification Python may lack
    found = []
    for name in sorted(names):
        spec = find_spec(name) if name.isidentifier() else None
        places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
        if any(place and here in Path(place).parents for place in places):  # not a module of that name elsewhere
            found.append(name)
    return found
