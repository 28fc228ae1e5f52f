"""Rows of files that somebody else has written, as they are, each with a place that a message can name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ofmu_pl.data.tables import read_table
from ofmu_pl.support.errors import NotAtHand, UserError
from ofmu_pl.support.files import LARGEST_JSON, LARGEST_LINE, LARGEST_TABLE, check_whole, numbered_lines
from ofmu_pl.support.hub import load_hub_rows

HUB = "hub:"
TURNS = {"messages", "conversations"}
"""Columns that hold a row's turns, which are no rows of their own."""
_SPACE = re.compile(r"\s*")
Source = str | list[dict[str, Any]]
"""A file, a folder of texts, ``hub:NAME/CONFIG/SPLIT``, or in Python the rows themselves."""


@dataclass(frozen=True)
class Rows:
    """Rows of one source, as it has them.

    Attributes:
        source: What messages call the source: a path, a name on the hub, or the argument that gave a list.
        option: Name of the argument that gave it.
        rows: The rows.
        marks: Where each row is: ``line 3``, or ``row 2 (counted from 0)``; of a folder the file's name.
    """

    source: str
    option: str
    rows: list[dict[str, Any]]
    marks: Sequence[str]

    def place(self, i: int) -> str:
        """Where row ``i`` is, for a message."""
        return f"{self.marks[i]} of '{self.source}'"

    def part(self, index: Iterable[int], option: str | None = None) -> Rows:
        """Some of the rows, under another option's name if one is given."""
        chosen = list(index)
        rows, marks = [self.rows[i] for i in chosen], [self.marks[i] for i in chosen]
        return Rows(self.source, option or self.option, rows, marks)

    def named(self, columns: dict[str, str]) -> Rows:
        """The rows with our names of columns beside theirs.

        Args:
            columns: Their names by ours.

        Raises:
            UserError: There is no such column.
        """
        if not columns:
            return self
        for name in columns.values():
            self.require(name, "columns")
        ours = [{**row, **{new: row[old] for new, old in columns.items() if old in row}} for row in self.rows]
        return Rows(self.source, self.option, ours, self.marks)

    def require(self, column: str, option: str) -> None:
        """Refuse a column that no row has.

        Raises:
            UserError: Naming those that are there.
        """
        known = dict.fromkeys(name for row in self.rows for name in row)
        if column not in known:
            raise UserError(
                f"'{self.source}' has no column '{column}', which `{option}` names: choose from {', '.join(known)}."
            )


def read_source(source: Source, option: str) -> Rows:
    """Read rows.

    Args:
        source: JSON lines (``.jsonl``, ``.json``), a JSON list (``.json``), ``.csv``, ``.tsv``, ``.parquet``, a text
            file or a folder of them (``.txt``: a document a file), ``hub:OWNER/NAME/CONFIG/SPLIT``, or a list of rows.
        option: Name of the argument that gave it, for messages: ``forget``.

    Raises:
        UserError: It is missing, empty, of another kind, broken, or not in UTF-8, or has half a character.
    """
    if isinstance(source, str | PathLike):
        name = str(source)
        rows = _from_hub(name, option) if name.startswith(HUB) else _from_path(Path(name).expanduser(), option)
    else:
        given = _given(source, option)
        rows = Rows(option, option, given, _counted(len(given)))
    if not rows.rows:
        raise UserError(f"'{rows.source}' holds no rows: give `{option}` at least one.")
    for i, row in enumerate(rows.rows):
        if not isinstance(row, dict) or not all(isinstance(name, str) for name in row):
            raise UserError(f"{upper(rows.place(i))} is no object with named columns: mend it.")
        check_whole(row, upper(rows.place(i)))
    return rows


def _given(source: Any, option: str) -> list[Any]:
    """Rows of an object of Python: a data frame, a data set of ``datasets``, or any rows or texts one after another."""
    if isinstance(source, dict):  # DatasetDict
        if len(source) != 1:
            raise UserError(f"`{option}` has the parts {', '.join(map(str, source))}: give one of them.")
        (source,) = source.values()
    if hasattr(source, "to_dict") and hasattr(source, "columns"):  # pandas, which may not be here
        source = source.to_dict(orient="records")
    try:
        coming = iter(source)  # which may be a generator, or a data set that has positions alone
    except TypeError:
        raise UserError(f"`{option}` is {source!r}: give a file, or rows as a list of dictionaries.") from None
    return [{"text": row} if isinstance(row, str) else row for row in coming]


def _from_hub(source: str, option: str) -> Rows:
    owner, name, config, split = [*source.removeprefix(HUB).split("/"), "", "", "", ""][:4]
    if not owner or not name or source.count("/") > 3:
        raise UserError(
            f"'{source}' names no data set on the hub: write `{option}` {HUB}OWNER/NAME, {HUB}OWNER/NAME/CONFIG or "
            f"{HUB}OWNER/NAME/CONFIG/SPLIT."
        )
    try:
        rows = load_hub_rows(f"{owner}/{name}", config or None, split or "train")
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise NotAtHand(
            f"'{source}' cannot be loaded from the hub ({reason}): check the name, its configuration and its split, "
            f"give `{option}` a file, or set HF_HUB_OFFLINE=1 to use the hub's cache."
        ) from error
    return Rows(source, option, rows, _counted(len(rows)))


def _from_path(path: Path, option: str) -> Rows:
    if path.is_dir():
        return _folder(path, option)
    if not path.is_file():
        raise UserError(
            f"'{path}' is missing: give `{option}` a file, a folder of .txt files, or {HUB}OWNER/NAME/CONFIG/SPLIT."
        )
    read = READERS.get(path.suffix.lower())
    if read is None:
        raise UserError(
            f"'{path}' is of a kind that is not read: give `{option}` one of {', '.join(READERS)}, or a folder of .txt "
            "files."
        )
    rows, marks = read(path)
    return Rows(str(path), option, rows, marks or _counted(len(rows)))


def _folder(folder: Path, option: str) -> Rows:
    paths = sorted(path for path in folder.rglob("*.txt") if not hidden(path, folder))
    if not paths:
        raise UserError(
            f"The folder '{folder}' holds no .txt files: give `{option}` a folder of texts, or a file of rows."
        )
    rows = [row for path in paths for row in _text(path)[0]]
    return Rows(str(folder), option, rows, [f"'{path.relative_to(folder)}'" for path in paths])


def hidden(path: Path, below: Path) -> bool:
    """Whether a program keeps this file for itself: drafts, caches, trash have names with a dot in front.

    Args:
        path: The file or folder.
        below: Folder from which on names count.
    """
    return any(name.startswith(".") for name in path.relative_to(below).parts)


Read = tuple[list[Any], list[str]]
"""Rows, and where each is where that is no plain number."""


def json_lines(path: Path) -> Read:
    """Read a JSON value per line; or values one after another, as jq prints them.

    Raises:
        UserError: A line holds none.
    """
    rows, marks = [], []
    for number, line in numbered_lines(path):
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            if not rows and (found := _values(_checked(path))) is not None:
                return found
            raise UserError(
                f"Line {number} of '{path}' is no JSON: mend the file, which needs a row a line."
            ) from error
        marks.append(f"line {number}")
    return rows, marks


def _values(text: str) -> Read | None:
    """JSON values of any number of lines each, one after another; ``None``: there is something else between them."""
    rows, marks, place, line = [], [], 0, 1
    decoder = json.JSONDecoder()
    while place < len(text):
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return None
        rows.append(value)
        marks.append(f"line {line}")
        begin = _SPACE.match(text, end).end()  # type: ignore[union-attr]  # it matches nothing, too
        line += text.count("\n", place, begin)
        place = begin
    return rows, marks


def _json(path: Path) -> Read:
    """Read a list of rows, alone or under one name (``{"data": [...]}``), columns as pandas writes them, or JSON lines.

    Raises:
        UserError: It is none of these.
    """
    text = _checked(path)
    if not text.startswith("["):
        rows, marks = json_lines(path)
        return (_table(rows[0]), []) if len(rows) == 1 else (rows, marks)
    try:
        return list(json.loads(text)), []
    except (ValueError, RecursionError) as error:
        raise UserError(f"'{path}' begins as a JSON list and is none ({error}): mend the file.") from error


def _table(value: Any) -> list[Any]:
    """The rows of one JSON object: a list that it holds, its columns by row, or itself."""
    if not isinstance(value, dict) or not value:
        return [value]
    lists = [x for x in value.values() if isinstance(x, list) and x and all(isinstance(row, dict) for row in x)]
    if len(lists) == 1 and not value.keys() & TURNS:
        return lists[0]
    columns = list(value.values())
    if all(isinstance(x, dict) and x.keys() == columns[0].keys() for x in columns):
        return [{name: column[row] for name, column in value.items()} for row in columns[0]]
    return [value]


def _csv(path: Path) -> Read:
    _checked(path)
    return read_table(path), []


def _tsv(path: Path) -> Read:
    _checked(path)
    return read_table(path, "\t"), []


def _parquet(path: Path) -> Read:
    import pyarrow  # type: ignore[import-untyped]  # comes with datasets
    from pyarrow import parquet

    rows: list[Any] = []
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=16):  # what a small file names many times is as large as its text
                if batch.nbytes > 16 * LARGEST_LINE or len(rows) > LARGEST_TABLE:
                    raise UserError(
                        f"Row {len(rows)} of '{path}' (counted from 0) and the next 15 have {batch.nbytes} bytes: a "
                        f"row may have {LARGEST_LINE}, and a table {LARGEST_TABLE} rows. Split the file."
                    )
                rows += batch.to_pylist()
        return rows, []
    except UserError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise UserError(f"'{path}' is no parquet file that can be read ({reason}): write it anew.") from error


def _text(path: Path) -> Read:
    return [{"text": _checked(path)}], [f"'{path.name}'"]


READERS = {
    ".jsonl": json_lines,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
    ".txt": _text,
}
"""Readers by the end of a file's name."""


def _checked(path: Path) -> str:
    """A file's text, without the mark that some programs put in front.

    Raises:
        UserError: It is not in UTF-8, or too large.
    """
    if path.stat().st_size > LARGEST_JSON:
        raise UserError(f"'{path}' has more than {LARGEST_JSON} bytes: give JSON lines (.jsonl) or parquet.")
    for _ in numbered_lines(path):  # names the line that is in another encoding
        pass
    return path.read_text(encoding="utf-8-sig").strip()


def _counted(n: int) -> list[str]:
    return [f"row {i} (counted from 0)" for i in range(n)]


def upper(text: str) -> str:
    """A text as a sentence begins."""
    return text[:1].upper() + text[1:]
