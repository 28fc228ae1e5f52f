"""What the pages print: their blocks of code, and the commands and options in them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/results").glob("*.md"))]
"""Pages that tell a reader what to type; dated notes (docs/log) never need to be true again."""
FENCE = re.compile(r"^(```|~~~)(\S*)[^\n]*\n(.*?)^\1", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """All blocks of a language, each with the name of its page."""
    found = []
    for page in PAGES:
        for _, kind, body in FENCE.findall(page.read_text(encoding="utf-8")):
            if kind == language:
                found.append((page.relative_to(ROOT).as_posix(), body))
    return found


def commands() -> list[tuple[str, list[str]]]:
    """Every command of the pages as words, with the name of its page.

    A line of options alone goes on with the page's first command, whose forget and retain rows a file of all rows
    replaces; brackets around options say that one may leave them out. Dots stand for more of the same, and are kept.
    """
    found: list[tuple[str, list[str]]] = []
    for page, body in blocks("bash"):
        for line in re.sub(r"\\\n\s*", " ", body).splitlines():
            words = shlex.split(re.sub(r"\[(--[^]]*)\]", r"\1", line), comments=True)
            words = words[: words.index(">")] if ">" in words else words
            if words and words[0].startswith("--"):
                words = next(other for name, other in found if name == page) + words
            for option in ("--data.forget", "--data.retain"):
                if "--data.full" in words and option in words:
                    words = words[: words.index(option)] + words[words.index(option) + 2 :]
            if words:
                found.append((page, words))
    return found


def ours(words: list[str]) -> list[str] | None:
    """The words after the program's name; ``None``: it is another program."""
    for program in (["python", "-m", "ofmu_pl"], ["ofmu_pl"]):
        if words[: len(program)] == program:
            return words[len(program) :]
    return None
