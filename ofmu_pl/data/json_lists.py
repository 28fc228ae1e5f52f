"""Rows of benchmarks that are published as lists in JSON files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import check_whole, read_json


def json_list(path: Path, remedy: str) -> list[Any]:
    """The list in a file; anything else is a list of one.

    Args:
        path: The file.
        remedy: What to do where it cannot be read, the end of the message.

    Raises:
        UserError: It is missing, no JSON, or has half a character.
    """
    if not path.is_file():
        raise UserError(f"'{path}' is missing: {remedy}.")
    try:
        found = read_json(path)
    except ValueError as error:
        raise UserError(f"'{path}' is no JSON ({error}): {remedy}.") from error
    rows = found if isinstance(found, list) else [found]
    for number, row in enumerate(rows, start=1):
        check_whole(row, f"Row {number} of '{path}'")
    return rows


def fields(rows: Iterable[Any], names: tuple[str, ...], place: str, remedy: str) -> list[tuple[str, ...]]:
    """Texts of rows, which each of them must have; none is quoted where one has not.

    Args:
        rows: Rows as they were read, which may be anything.
        names: Names of the texts.
        place: Where the rows are, for the message.
        remedy: What to do, the end of the message.

    Raises:
        UserError: A row is no object, or lacks a text.

    >>> fields([{"text": "Who?", "labels": "She."}], ("text", "labels"), "'a.json'", "mend it")
    [('Who?', 'She.')]
    """
    found = []
    for number, row in enumerate(rows, start=1):
        texts = [row.get(name) for name in names] if isinstance(row, dict) else [None]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise UserError(f"Row {number} of {place} has no texts {' and '.join(names)}: {remedy}.")
        found.append(tuple(str(text) for text in texts))
    return found
