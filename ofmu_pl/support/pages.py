"""Templates of pages that need nothing else: no script, no request; ``page.css`` is the style of all of them."""

import re
from collections.abc import Callable

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ofmu_pl.support.escapes import visible

REPORT = "report"  # the folder of a report, below that of the runs that it is of
AUDIT = "audit.html"  # the page of a run for the person who must sign, beside its results
CARD = "README.md"  # the model card, in the folder of the exported model


def marks(part: str) -> tuple[str, str]:
    """What stands around a part of a page that changes later; no text of others can hold it, for it is escaped."""
    return f"<!-- {part} from here -->", f"<!-- {part} to here -->"


ROWS = marks("rows")
"""What stands around the rows on the audit page."""
REMOVED = "<p>The rows and answers that stood here were removed.</p>"


def without_rows(text: str) -> str:
    """The audit page's text without the rows on it; the page itself if there are none.

    >>> without_rows(f"a{ROWS[0]}row{ROWS[1]}b") == f"a{REMOVED}b"
    True
    """
    before, found, rest = text.partition(ROWS[0])
    return f"{before}{REMOVED}{rest.partition(ROWS[1])[2]}" if found else text


def renewed(text: str, part: str, new: str) -> str | None:
    """A page with a part, whose marks are around it, instead of the old one; ``None``: it has no such part.

    >>> begin, end = marks("news")
    >>> renewed(f"a{begin}b{end}c", "news", "x"), renewed("abc", "news", "x")
    ('axc', None)
    """
    begin, end = marks(part)
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    return f"{before}{new}{after}" if found else None


def plain(text: object) -> str:
    r"""Text in one line, in which nothing is Markdown or HTML.

    >>> plain("a | <b>\n# c")
    'a &#124; &#60;b&#62; &#35; c'
    """
    line = visible(" ".join(str(text).split()))
    return re.sub(r"[&<>|`*\[\]\\#~$]|_(?!\w)|(?<!\w)_", lambda found: f"&#{ord(found[0])};", line)


def _visible(value: object) -> str:
    return Markup(visible(value)) if isinstance(value, Markup) else visible(value)


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
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters)
    return made
