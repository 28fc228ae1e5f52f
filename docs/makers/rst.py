"""Pieces of reStructuredText."""

import re


def heading(text: str, line: str = "-") -> str:
    """A heading of reStructuredText."""
    return f"{text}\n{line * len(text)}\n\n"


def verbatim(text: str) -> str:
    """Plain text whose signs stand for themselves."""
    return re.sub(r"(?<!\w)--[\w.]+|([*|`_\\])", lambda m: f"\\{m[1]}" if m[1] else f"``{m[0]}``", text)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table of reStructuredText; cells are Markdown's neither."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [header, *rows]:
        lines += [f"   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n\n"


def tree(title: str, about: str, names: list[str]) -> str:
    """A page that lists others."""
    pages = "\n".join(f"   {name}" for name in names)
    return f"{heading(title, '=')}{about}\n\n.. toctree::\n   :maxdepth: 1\n\n{pages}\n"
