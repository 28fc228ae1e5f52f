"""Whose code may be imported for what files name: libraries, the user's own modules, and those that the line trusts."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from jsonargparse import set_parsing_settings

PACKAGES: tuple[str, ...] = ("ofmu_pl", "torch.optim", "torch.nn", "lightning", "transformers", "peft", "bitsandbytes")
PACKAGES += ("torchvision.datasets", "torchvision.models", "torchvision.transforms")
"""Whose classes a configuration may name; judged where they are defined."""
NEVER: tuple[str, ...] = ("transformers.data", "transformers.dynamic_module_utils")
NEVER += ("torchvision.datasets.utils", "torchvision.datasets.lsun")
"""Parts of these that unpickle, fetch or run what they are given."""
TRUSTED, OWN = "OFMU_PL_TRUST", "OFMU_PL_OWN"
"""Variables by which workers know the modules that the user's line trusts, and those of the working folder."""


def modules_in(variable: str) -> list[str]:
    """The modules that an environment variable lists."""
    return os.environ.get(variable, "").split()


def restrict_imports() -> None:
    """Let values of configurations name what is listed alone, and make no objects where an option has no type.

    What libraries import by themselves is no module of the working folder either, unless it is the user's own.
    """
    set_parsing_settings(
        import_path_denylist=["*", *NEVER],
        import_path_allowlist=[*PACKAGES, *modules_in(OWN), *modules_in(TRUSTED)],
        instantiate_subclass_spec_in_any=False,
    )
    _GUARD.here = Path.cwd()
    lies_in.cache_clear()
    if _GUARD not in sys.meta_path:
        sys.meta_path.insert(0, _GUARD)


@contextmanager
def libraries_alone() -> Iterator[None]:
    """A context for what came with a run: its values name libraries and trusted modules, none of the working folder."""
    own = os.environ.pop(OWN, "")
    set_parsing_settings(import_path_denylist=own.split(), import_path_allowlist=modules_in(TRUSTED))
    try:
        yield
    finally:
        os.environ[OWN] = own
        set_parsing_settings(import_path_allowlist=own.split())


class UntrustedError(ModuleNotFoundError):
    """Something asks for a module of the working folder that is not the user's own, and that no line trusts."""


class _Guard:
    """Finds no module, but refuses code that Python would import from the working folder and nobody trusts.

    Attributes:
        here: That folder; parsers go to the folder of a configuration while they read it.
    """

    here = Path()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Refuse code of the working folder that is not own, and in own packages what has no ``__init__.py``.

        An empty folder of a library's name, such as trackers leave, may be looked for: it has no code.

        Raises:
            UntrustedError: Such a module is asked for.
        """
        top = name.partition(".")[0]
        if not lies_in(self.here, top) or top in {module.partition(".")[0] for module in modules_in(TRUSTED)}:
            return
        spec = PathFinder.find_spec(name, path)
        own, bare = top in modules_in(OWN), spec is not None and spec.origin is None
        if spec is not None and (bare if own else path is not None or not bare):
            raise UntrustedError(
                f"'{name}' lies in the working folder, and the line does not trust it: rename '{top}' there, or, only "
                f"if you know it to be safe, add --trust {name}"
            )


_GUARD = _Guard()


@lru_cache(maxsize=4096)
def lies_in(here: Path, name: str) -> bool:
    """Whether Python would import a top-level name from a folder, not a module of that name elsewhere."""
    loaded = getattr(sys.modules.get(name), "__spec__", None)
    spec = loaded or PathFinder.find_spec(name) if name.isidentifier() and name != "ofmu_pl" else None
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
    inside = here / name
    return any(place and Path(place) in (inside, inside / "__init__.py", inside.with_suffix(".py")) for place in places)
