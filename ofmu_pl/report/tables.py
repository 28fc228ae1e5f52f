"""One table, written as Markdown, CSV or LaTeX (table.html.jinja: as HTML). All text is escaped for where it goes."""

import csv
import html
import io
import math
import re
from dataclasses import dataclass, field
from itertools import chain

from ofmu_pl.report.statistics import Spread
from ofmu_pl.support.escapes import visible


@dataclass
class Entry:
    """What stands in one place of a table.

    Attributes:
        small: Behind it, of less weight: an interval, a paper's anchor.
        numbers: For CSV: by suffix of the column's name (empty: none), unrounded.
        struck: It is not to be believed.
        mark: A sign behind it, which a note explains.
    """

    text: str = ""
    small: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    best: bool = False
    struck: bool = False
    mark: str = ""


@dataclass
class Table:
    """Rows under heads.

    Attributes:
        ours: Numbers of rows to emphasise.
        lines: Numbers of rows with a line below.
        folded: Whether the page shows it only when it is asked for.
    """

    name: str
    title: str
    head: list[str]
    rows: list[list[Entry]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ours: set[int] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)
    folded: bool = False

    def add(self, row: list[Entry], ours: bool = False) -> None:
        """Add a row, emphasised where it is ours."""
        if ours:
            self.ours.add(len(self.rows))
        self.rows.append(row)

    def note(self, *sentences: str) -> None:
        """Say more below the table."""
        self.notes.extend(sentences)

    def line(self) -> None:
        """Draw a line below the last row."""
        self.lines.add(len(self.rows) - 1)

    @property
    def numeric(self) -> list[bool]:
        """Columns that hold numbers."""
        found = [False] * len(self.head)
        for row in self.rows:
            found = [known or bool(e.numbers) for known, e in zip(found, row, strict=True)]
        return found

    def leads(self, e: Entry, row: int) -> bool:
        """Whether an entry is set in bold: the best, or the name of ours."""
        return bool(e.text) and (e.best or (row in self.ours and e is self.rows[row][0]))


def figure(x: float) -> str:
    """A number with three or four digits that count.

    >>> [figure(x) for x in (0.0, 5.9e-20, 0.5786, 99.06, 1234.5, float("nan"))]
    ['0', '6e-20', '0.579', '99.06', '1234', '–']
    """
    if not math.isfinite(x):
        return "–"
    size = abs(x)
    if size == 0:
        return "0"
    return f"{x:.0f}" if size >= 1000 else f"{x:.2f}" if size >= 10 else f"{x:.3f}" if size >= 0.001 else f"{x:.0e}"


def measured(s: Spread, best: bool = False, mark: str = "") -> Entry:
    """Mean ± deviation, and the interval.

    >>> measured(Spread(3, 0.5, 0.1, 0.4, 0.6)).text
    '0.500 ± 0.100'
    """
    if s.n == 0:
        return Entry("–", mark=mark)
    text = figure(s.mean)
    if s.std <= 1e-12 * abs(s.mean):  # rounding, no spread
        s = Spread(s.n, s.mean, 0.0, s.mean, s.mean)
    numbers = {"": s.mean, "std": s.std, "low": s.low, "high": s.high, "n": s.n}
    small = "" if math.isnan(s.low) else between(s.low, s.high)
    if s.n > 1:
        exact = 0.001 <= abs(s.mean) < 1000 and not 0 < s.std < 0.0005
        text += " ± " + (f"{s.std:.{len(text.partition('.')[2])}f}" if exact else figure(s.std))
    return Entry(text, small, {k: x for k, x in numbers.items() if not math.isnan(x)}, best, mark=mark)


def between(low: float, high: float) -> str:
    """An interval, as people read it."""
    return f"[{figure(low)}, {figure(high)}]"


def plain(x: float | None) -> Entry:
    """An entry of one number."""
    return Entry("–") if x is None or not math.isfinite(x) else Entry(figure(x), numbers={"": x})


def to_markdown(table: Table) -> str:
    """GitHub's, with the title above and the notes below."""

    def entry(e: Entry, row: int) -> str:
        text = _md(e.text) + _md(e.mark)
        text = f"~~{text}~~" if e.struck and text else text
        text = f"**{text}**" if table.leads(e, row) else text
        return f"{text} {_md(e.small)}".strip()

    lines = [f"**{_md(table.title)}**", "", "| " + " | ".join(map(_md, table.head)) + " |"]
    lines.append("|" + "|".join("---:" if right else "---" for right in table.numeric) + "|")
    for i, row in enumerate(table.rows):
        lines.append("| " + " | ".join(entry(e, i) for e in row) + " |")
    return "\n".join([*lines, "", *(f"- {_md(note)}" for note in table.notes)]).rstrip() + "\n"


def _md(text: str) -> str:
    """A text without line breaks, in which what Markdown or HTML would read is taken literally."""
    escaped = html.escape(visible(" ".join(text.split())), quote=False).replace("&gt;", ">")
    return "".join("\\" + c if c in "\\|*_`[]~" else c for c in escaped)


def to_csv(table: Table) -> str:
    """Numbers unrounded, a column each: ``UA``, ``UA std``, ``UA low``, ``UA high``, ``UA n``; no titles, no notes."""
    columns = []
    for i, head in enumerate(table.head):
        suffixes = dict.fromkeys(chain.from_iterable(row[i].numbers for row in table.rows))
        columns.append((re.sub(" [→↑↓]", "", head), list(suffixes)))
    names = []
    for head, suffixes_of in columns:
        names += [_inert(f"{head} {suffix}".strip()) for suffix in suffixes_of or [""]]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(names)
    for row in table.rows:
        cells: list[str] = []
        for e, (_, suffixes_of) in zip(row, columns, strict=True):
            numbers = [repr(e.numbers[x]) if x in e.numbers else "" for x in suffixes_of]
            cells += numbers or [_inert(e.text)]
        writer.writerow(cells)
    return written.getvalue()


def _inert(text: str) -> str:
    """A text on one line that is no formula, which a spreadsheet would run; numbers stay as they are."""
    text = visible(" ".join(text.split()))
    return f"'{text}" if text[:1] in tuple("=+-@") and not _NUMBER.fullmatch(text) else text


_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?")


_TEX = {
    **{c: f"\\{c}" for c in "{}$&#_%"},
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"$<$", ">": r"$>$"},
    **{"±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "→": r"$\to$", "×": r"$\times$"},
    **{"–": "--", "|": r"$|$"},
    **{"†": r"$\dagger$", "‡": r"$\ddagger$", "ρ": r"$\rho$", "∇": r"$\nabla$", "²": "$^2$", "*": r"$^{*}$"},
}


def tex(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> tex("a_b & 5 % ± 1")
    'a\\_b \\& 5 \\% $\\pm$ 1'
    """
    return "".join(_TEX.get(c, c) for c in visible(" ".join(text.split())))


def to_latex(table: Table) -> str:
    """A ``table`` for booktabs; struck entries stand in parentheses, intervals are left to the other formats."""

    def entry(e: Entry, row: int) -> str:
        text = tex(e.text) + tex(e.mark)
        text = f"({text})" if e.struck and text else text
        return f"\\textbf{{{text}}}" if table.leads(e, row) else text

    columns = "".join("r" if right else "l" for right in table.numeric)
    lines = [r"\begin{table}", r"\centering", f"\\caption{{{tex(table.title)}}}"]
    lines += [f"\\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(map(tex, table.head)) + r" \\", r"\midrule"]
    for i, row in enumerate(table.rows):
        lines.append(" & ".join(entry(e, i) for e in row) + r" \\")
        if i in table.lines and i + 1 < len(table.rows):
            lines.append(r"\midrule")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [r"\par\smallskip\footnotesize " + tex(note) for note in table.notes]
    return "\n".join([r"% \usepackage{booktabs}", *lines, r"\end{table}"]) + "\n"
