"""Formats of files of rows: JSON lines, JSON, tables, parquet and text."""

import csv
import json
import re
import zlib
from collections.abc import Iterator
from io import TextIOWrapper
from itertools import repeat
from math import inf
from pathlib import Path
from typing import Any

from ofmu_pl.support.errors import UserError, reason
from ofmu_pl.support.files import LARGEST_JSON, LARGEST_LINE, LARGEST_TABLE, numbered_lines, opened

FORMS = {
    "messages": ("messages",),
    "conversations": ("conversations",),
    "question": ("question", "answer"),
    "prompt": ("prompt", "completion"),
    "text": ("text",),
}
"""Columns of each form by the first of them, which tells the form."""
_WORD = re.compile(r"\S")
SEPARATORS = ",;\t"  # what may stand between values of a .csv file; semicolons where a comma separates decimals
REMEDY = "write texts with separators, quotes or line breaks in double quotes, and double the quotes inside"
Read = tuple[list[object], list[str]]  # rows, and where each is where that is no plain number


def json_lines(path: Path) -> Read:
    """Read a JSON value a line, or values of any number of lines one after another, as jq prints them."""
    text, place, line = whole_text(path, most=inf).rstrip(), 0, 1
    rows: list[object] = []
    marks, decoder = [], json.JSONDecoder()
    while place < len(text):
        begin = _WORD.search(text, place).start()  # type: ignore[union-attr]  # there is one before the end
        line += text.count("\n", place, begin)
        try:
            value, place = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            raise UserError(f"Line {line} of '{path}' is no JSON: mend the file, which needs a row a line.") from error
        rows.append(value)
        marks.append(f"Line {line}")
        line += text.count("\n", begin, place)
    return rows, marks


def _json(path: Path) -> Read:
    """Read a list of rows, alone or under one name (``{"data": [...]}``), columns by row number, or JSON lines."""
    text = whole_text(path)
    if not text.lstrip().startswith("["):
        rows, marks = json_lines(path)
        table = _table(rows[0]) if len(rows) == 1 else rows
        return (rows, marks) if table == rows else (table, [])
    try:
        return list(json.loads(text)), []
    except (ValueError, RecursionError) as error:
        raise UserError(f"'{path}' begins as a JSON list and is none ({error}): mend the file.") from error


def _table(value: object) -> list[object]:
    """The rows of one JSON object: the one list of rows that it holds, its columns by row (pandas' form), or itself."""
    if not isinstance(value, dict) or not value or _is_row(value):
        return [value]
    columns = list(value.values())
    lists = [x for x in columns if isinstance(x, list) and x and set(map(type, x)) == {dict}]
    if len(lists) == 1:
        return lists[0]
    if not all(isinstance(x, dict) and x.keys() == columns[0].keys() for x in columns):
        return [value]
    rows: list[object] = []
    for row in columns[0]:
        rows.append({name: column[row] for name, column in value.items()})
    return rows


def _is_row(value: dict[str, object]) -> bool:
    """Whether an object is one row: a conversation, whose turns are no rows, or an answer with what it answers."""
    texts = {name for name, x in value.items() if isinstance(x, str)}
    answered = any(len(names) == 2 and texts.issuperset(names) for names in FORMS.values())
    return answered or "messages" in value or "conversations" in value


def _table_of_texts(path: Path) -> Read:
    """Read a table whose first line has the names of its columns; every value is text, as it is written."""
    whole_text(path)
    separators = "\t" if kind_of(path) == ".tsv" else SEPARATORS
    with TextIOWrapper(opened(path), newline="", encoding="utf-8-sig") as file:
        names = next(filter(str.strip, file), "")
        file.seek(0)
        separator = next((x for x in separators if x in names), separators[0])
        reader = csv.reader(file, delimiter=separator, strict=True)
        limit = csv.field_size_limit(LARGEST_LINE)  # the module's is meant for other tables, which the process may read
        try:
            lines = [(reader.line_num, values) for values in reader if values]
        except csv.Error as error:
            raise UserError(f"Line {reader.line_num} of '{path}' is of no table ({error}): {REMEDY}.") from error
        finally:
            csv.field_size_limit(limit)
    columns = [name.strip() for name in lines[0][1]] if lines else []
    named = list(filter(None, columns))
    if len(set(named)) < len(named):
        raise UserError(f"Two columns of '{path}' have one name ({', '.join(named)}): rename one, or remove it.")
    rows: list[object] = []
    for number, values in lines[1:]:
        if any(value.startswith(" ") and value.lstrip(" ").startswith('"') for value in values):
            raise UserError(f"Line {number} of '{path}' has a space before a quote, which no table has: take it out.")
        if len(values) > len(columns):
            raise UserError(f"Line {number} of '{path}' has more values than there are columns: {REMEDY}.")
        rows.append(dict(zip(columns, values + [""] * len(columns), strict=False)))
    return rows, []


def parquet_rows(path: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Read the rows of a parquet file, or these columns of them; what is larger than a row may be is never unpacked.

    Raises:
        UserError: A row is too large, there are too many, or the file is no parquet.
    """
    import pyarrow  # type: ignore[import-untyped]  # comes with datasets
    from pyarrow import parquet

    done = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=16, columns=columns):  # of a text that is named many times
                sizes = map(_bytes, map(batch.slice, range(len(batch)), repeat(1)))
                largest = max(sizes) if batch.nbytes > LARGEST_LINE else 0
                done += len(batch)
                if largest > LARGEST_LINE or done > LARGEST_TABLE:
                    raise UserError(
                        f"One of the rows {done - len(batch)} to {done - 1} of '{path}' (counted from 0) has {largest} "
                        f"bytes: a row may have {LARGEST_LINE}, and a table {LARGEST_TABLE} rows. Split the file."
                    )
                yield from batch.to_pylist()
    except UserError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise UserError(f"'{path}' is no parquet file that can be read ({reason(error)}): write it anew.") from error


def _bytes(row: Any) -> int:
    """Bytes of one row; of the texts that a column lists once for all rows, the row's own."""
    return sum((x.dictionary_decode() if hasattr(x, "dictionary_decode") else x).nbytes for x in row.columns)


def _parquet(path: Path) -> Read:
    return list(parquet_rows(path)), []


def _text(path: Path) -> Read:
    return [whole_text(path).strip()], [f"'{path.name}'"]


READERS = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".json": _json,
    ".csv": _table_of_texts,
    ".tsv": _table_of_texts,
    ".parquet": _parquet,
    ".txt": _text,
    ".md": _text,
}
"""Readers by the end of a file's name."""
TEXTS = (".txt", ".md")  # files that are a document each


def kind_of(path: Path) -> str:
    """The end of a file's name, in small letters and without ``.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def whole_text(path: Path, most: float = LARGEST_JSON) -> str:
    """A file's text, without the mark that some programs put in front."""
    size = path.stat().st_size
    if path.suffix.lower() == ".gz":
        try:
            with opened(path) as file:
                most, size = LARGEST_JSON, len(file.read(LARGEST_JSON + 1))
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"'{path}' cannot be unpacked ({reason(error)}): write it anew.") from error
    if size > most:
        raise UserError(f"'{path}' has more than {most} bytes: give JSON lines (.jsonl), unpacked, or parquet.")
    for _ in numbered_lines(path):  # names the line that is in another encoding
        pass
    with TextIOWrapper(opened(path), encoding="utf-8-sig") as text:
        return text.read()
