"""Templates of pages that need nothing else: no script, no request; ``page.css`` is the style of all of them."""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

REPORT = "report"
"""The folder of a report, below that of the runs that it is of."""
AUDIT = "audit.html"
"""The page of a run for the person who must sign, beside its results."""


def templates(package: str, escapes: bool = True, **filters: Callable[..., object]) -> Environment:
    """Make jinja2's environment of the templates in a package's folder; a missing name is an error.

    Args:
        package: Name of the package.
        escapes: Whether all that a template is given is escaped for HTML.
        filters: Filters by name.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("ofmu_pl.support", ".")]),
        autoescape=escapes,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters)
    return made
