"""OFMU: penalty-based bi-level machine unlearning, and the bench around it.

Everything public can be had from here, and nothing is imported before it is asked for:

>>> from ofmu_pl import forget_quality
>>> forget_quality.__module__
'ofmu_pl.metrics.functional'
"""

import ast
from importlib import import_module
from pathlib import Path

from lazy_loader import attach


def _shown() -> dict[str, list[str]]:
    """Names by module, as ``__init__.pyi`` says; a star is all that a room's own stub shows."""
    shown: dict[str, list[str]] = {}
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(line, ast.ImportFrom) and line.module:
            names = [alias.name for alias in line.names]
            room = import_module(f"{__name__}.{line.module}").__all__ if names == ["*"] else names
            shown.setdefault(line.module, []).extend(room)
    return shown


__getattr__, __dir__, __all__ = attach(__name__, submod_attrs=_shown())
__all__ += ["__version__"]

__version__ = "0.3.0"
