"""The command ``find``: the rows that name persons, as numbers for ``data.forget_rows`` and a page to check by eye."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ofmu_pl.data.own_files import Rows, read_source
from ofmu_pl.finder.names import WORD, Hit, find
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.escapes import say
from ofmu_pl.support.files import numbered_lines, texts_in, write_text
from ofmu_pl.support.pages import templates

PAGE = "found.html"
MOST = 2000  # hits of a file that the page shows; the files of numbers have all
SHOWN = 200  # letters of a row that the page shows before the hit, and after it


@dataclass(frozen=True)
class Found:
    """What one file has.

    Attributes:
        source: The file.
        total: Number of its rows.
        rows: Numbers of rows that are about a person.
        inside: Numbers of rows that name a person and are about something else.
        doubtful: Numbers of rows whose best hit has less than the least score.
        mentions: Hits with the places of their rows, the surest first.
    """

    source: str
    total: int
    rows: list[int]
    inside: list[int]
    doubtful: list[int]
    mentions: list[tuple[Hit, str]]


def search(sources: Sequence[str], names: Path, out: Path, least: float) -> None:
    """Write ``NAME.rows.txt``, ``NAME.inside.txt`` and the page, and print what to do with them.

    Args:
        sources: Files in the forms that ``fit`` reads.
        names: A text file with a name a line, given names first.
        out: Folder of the outputs.
        least: Score from which a row is written into a file of numbers, 0 to 100.
    """
    check_range(0, 100, least=least)
    sought = _names(names)
    found = [_found(read_source(source, "rows"), sought, least) for source in sources]
    lists = [_write_numbers(out, f, i, len(found)) for i, f in enumerate(found)]
    page = templates("ofmu_pl.finder").get_template("page.html.jinja")
    text = page.render(found=found, names=sought, least=least, most=MOST, shown=SHOWN)
    write_text(out / PAGE, text)
    persons = sought[0] if len(sought) == 1 else f"one of {len(sought)} persons"
    for f, numbers in zip(found, lists, strict=True):
        say(f"{f.source}: {len(f.rows)} of {f.total} rows are about {persons} ({numbers}),")
        say(f"  {len(f.inside)} more name them inside of something else, {len(f.doubtful)} are doubtful.")
    say(f"Check them by eye: {out / PAGE}")
    for f, numbers in zip(found, lists, strict=True):
        if f.rows:
            say(
                "Then forget them: python -m ofmu_pl fit --config ofmu_pl:text.yaml "
                f"--data.full {quote(f.source)} --data.forget_rows {quote(str(numbers))} --model.network.path MODEL"
            )


def _names(path: Path) -> list[str]:
    if path.is_dir() or not path.exists():
        fault = "a folder" if path.is_dir() else "missing"
        raise UserError(f"'{path}' is {fault}: give `names` a text file with a name a line.")
    lines = [line.decode().strip() for _, line in numbered_lines(path)]
    names = [line for line in lines if WORD.search(line)]
    if not names:
        raise UserError(f"'{path}' holds no name: write one a line, given names first.")
    return names


def _found(rows: Rows, names: Sequence[str], least: float) -> Found:
    texts = [" \N{MIDDLE DOT} ".join(texts_in(row)) for row in rows.rows]
    hits = sorted(find(texts, names), key=lambda hit: (-hit.score, hit.row))
    sure = [hit for hit in hits if hit.score >= least]
    about = {hit.row for hit in sure if not hit.inside}
    inside = {hit.row for hit in sure} - about
    mentions = [(hit, rows.place(hit.row)) for hit in hits[:MOST]]
    doubtful = {hit.row for hit in hits} - about - inside
    return Found(rows.source, len(texts), sorted(about), sorted(inside), sorted(doubtful), mentions)


def _write_numbers(out: Path, found: Found, i: int, files: int) -> Path:
    """Write the numbers, a line each; returns the file of the rows that are about a person."""
    name = Path(found.source).stem + (f"-{i}" if files > 1 else "")
    for kind, numbers in (("inside", found.inside), ("rows", found.rows)):
        path = out / f"{name}.{kind}.txt"
        write_text(path, "".join(f"{number}\n" for number in numbers))
    return path
