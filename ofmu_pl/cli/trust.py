"""Configurations that others wrote are read and never run: a list says which classes they may name."""

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from jsonargparse import set_parsing_settings

from ofmu_pl.support.classes import NEVER, OWN, PACKAGES, TRUSTED, modules_in
from ofmu_pl.support.errors import UserError

TRUST = "--trust"


def without_trust(words: list[str]) -> list[str]:
    """Take ``--trust MODULE`` out of the user's words; the processes that the command starts trust these modules, too.

    Only the user's own line is read like this: words that a file has given rise to go to a worker as they are.
    """
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
    os.environ[TRUSTED] = " ".join([*modules_in(TRUSTED), *trusted])
    os.environ[OWN] = " ".join(_of_the_working_folder())
    return left


def restrict_imports(words: Sequence[str] = ()) -> None:
    """Let values of configurations name what is listed alone, and make no objects where an option has no type.

    No module beside or below what the ``words`` name may be named, but those in the working folder itself: others may
    have written both a configuration and the code beside it.
    """
    named = {_dotted(word.rpartition("=")[2]) for word in words}
    own = [name for name in modules_in(OWN) if name not in named]
    libraries = [name for name in PACKAGES if name == "ofmu_pl" or not _lies_here(name.split(".")[0])]
    unmarked = [name for package in own for name in _unmarked(Path.cwd() / package, package)]
    set_parsing_settings(
        import_path_denylist=["*", *PACKAGES, *NEVER, *modules_in(OWN), *unmarked, *filter(None, named)],
        import_path_allowlist=[*libraries, *own, *modules_in(TRUSTED)],
        instantiate_subclass_spec_in_any=False,
    )


def _dotted(word: str) -> str:
    """The name by which Python would import from the folder of a file, or from a folder; empty: it would not."""
    if not os.path.exists(word):
        return ""
    path, here = Path(word).resolve(), Path.cwd()
    folder = path if path.is_dir() else path.parent
    parts = folder.relative_to(here).parts if here in folder.parents else ()
    return ".".join(parts) if all(map(str.isidentifier, parts)) else ""


def _of_the_working_folder() -> list[str]:
    """Modules of the working folder, and packages, that Python would import from there."""
    here = Path.cwd()
    names = {path.stem for path in here.glob("*.py")} | {path.parent.name for path in here.glob("*/__init__.py")}
    names -= {"__main__", *(package.split(".")[0] for package in PACKAGES)}  # the first may lack a specification
    return [name for name in sorted(names) if _lies_here(name)]


def _lies_here(name: str) -> bool:
    """Whether Python would import a name from the working folder, not a module of that name elsewhere."""
    spec = find_spec(name) if name.isidentifier() else None
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
    inside = Path.cwd() / name
    return any(place and Path(place) in (inside, inside / "__init__.py", inside.with_suffix(".py")) for place in places)


def _unmarked(folder: Path, name: str) -> Iterator[str]:
    """Folders in a package that have no ``__init__.py``, but that Python would take for parts of the package."""
    for inner in sorted(p for p in folder.glob("*/") if p.name.isidentifier()):
        if (inner / "__init__.py").is_file():
            yield from _unmarked(inner, f"{name}.{inner.name}")
        else:
            yield f"{name}.{inner.name}"
