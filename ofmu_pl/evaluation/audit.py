"""``audit.html``: one page for the person who must sign that rows were unlearned, without a claim of proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ofmu_pl.support.files import replacing
from ofmu_pl.support.pages import AUDIT, marks, templates

if TYPE_CHECKING:
    from ofmu_pl.evaluation.account import Account

MARKS = marks("rows")
REMOVED = "<p>The rows and answers that stood here were removed.</p>"


def write_audit(path: Path, account: Account) -> None:
    """Write the page, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(page(account), encoding="utf-8")


def page(account: Account) -> str:
    """Return the page's text."""
    # Imported here, so that purge, which needs the marks alone, stays light.
    from ofmu_pl.evaluation.attacked import parts
    from ofmu_pl.evaluation.plain import ends, joined, shown

    made = templates("ofmu_pl.evaluation", shown=shown, ends=ends, joined=joined).get_template("audit.html.jinja")
    return made.render(a=account, marks=MARKS, attacks=parts(AUDIT, account.modality))


def without_rows(text: str) -> str:
    """A page's text without the rows on it; the page itself if there are none.

    >>> without_rows(f"a{MARKS[0]}row{MARKS[1]}b") == f"a{REMOVED}b"
    True
    """
    before, found, rest = text.partition(MARKS[0])
    return f"{before}{REMOVED}{rest.partition(MARKS[1])[2]}" if found else text
