"""Rows of files that somebody else has written, each with a place that a message can name, and rows by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import Any

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_folders import files_of
from ofmu_pl.data.row_formats import READERS, TEXTS, kind_of
from ofmu_pl.support.errors import NotAtHand, UserError, check_range, reason
from ofmu_pl.support.files import LARGEST_LINE, below, check_whole, numbered_lines, regular, texts_in
from ofmu_pl.support.hub import load_hub_rows, local_folder

HUB = "hub:"
SAVED = ("dataset_info.json", "dataset_dict.json")  # of what datasets' `save_to_disk` wrote
Source = str | list[Row]  # a file, a folder of texts, `hub:NAME/CONFIG/SPLIT`, or in Python the rows themselves


@dataclass(frozen=True)
class Rows:
    """Rows of one source, as it has them.

    Attributes:
        source: What messages call the source: a path, a name on the hub, or the option that gave a list.
        option: Name of the option that gave it (``data.forget``).
        marks: Where each row is: ``Line 3``, or ``Row 2 (counted from 0)``; of a folder the file's name.
        files: Number of files that it was read from; 0: of none.
    """

    source: str
    option: str
    rows: list[Row]
    marks: Sequence[str]
    files: int = 0

    def place(self, i: int) -> str:
        """Where row ``i`` is, as a message begins."""
        return f"{self.marks[i]} of '{self.source}'"

    def part(self, index: Iterable[int], option: str | None = None) -> Rows:
        """Some of the rows, under another option's name if one is given."""
        chosen = list(index)
        rows, marks = [self.rows[i] for i in chosen], [self.marks[i] for i in chosen]
        return replace(self, option=option or self.option, rows=rows, marks=marks)

    def named(self, columns: dict[str, str]) -> Rows:
        """The rows with our names of columns beside theirs."""
        ours = [dict(row) for row in self.rows]
        for new, old in columns.items():
            self.require(old, "data.columns")
            for row, own in zip(self.rows, ours, strict=True):
                if old in row:
                    own[new] = row[old]
        return replace(self, rows=ours)

    def require(self, column: str, option: str) -> None:
        """Refuse a column that no row has."""
        known = dict.fromkeys(chain.from_iterable(self.rows))
        if column not in known:
            near = get_close_matches(column, known, n=1)
            meant = f"did you mean '{near[0]}'? It has" if near else "choose from"
            raise UserError(
                f"'{self.source}' has no column '{column}', which `{option}` names: {meant} {', '.join(known)}."
            )

    def texts(self, *names: str) -> list[tuple[str, ...]]:
        """These texts of each row."""
        found = []
        for i, row in enumerate(self.rows):
            missing = [name for name in names if not is_text(row.get(name))]
            if missing:
                raise UserError(
                    f"{self.place(i)} has no text in '{missing[0]}' (its columns: {', '.join(row)}): fill it, remove "
                    f"the row, or name another column, of your own rows by --data.columns '{{{missing[0]}: NAME}}'."
                )
            found.append(tuple(row[name] for name in names))
        return found


def sound(source: str, option: str, rows: Sequence[object], marks: Sequence[str] = ()) -> Rows:
    """Rows that have columns; a text is a row with ``text``, and without marks rows are named by their numbers."""
    marks = marks or [f"Row {i} (counted from 0)" for i in range(len(rows))]
    found = Rows(source, option, [], marks)
    for i, row in enumerate(rows):
        own = {"text": row} if isinstance(row, str) else row
        if not isinstance(own, dict) or not all(isinstance(name, str) for name in own):
            raise UserError(f"{found.place(i)} is no object with named columns: mend it.")
        check_whole(own, found.place(i))
        if any(len(text) > LARGEST_LINE for text in texts_in(own)):
            raise UserError(f"{found.place(i)} has a text of more than {LARGEST_LINE} characters: split it.")
        found.rows.append(own)
    return found


def read_source(source: Source, option: str) -> Rows:
    """Read the rows of a file, of a folder, of a data set on the hub, or of a list.

    Args:
        source: JSON lines (``.jsonl``, ``.ndjson``, ``.json``), a JSON list (``.json``), ``.csv``, ``.tsv``,
            ``.parquet``, a text (``.txt``, ``.md``: a document a file), any of these with ``.gz`` behind, a folder of
            texts or of files of rows, one that datasets' ``save_to_disk`` wrote, ``hub:OWNER/NAME/CONFIG/SPLIT``, or a
            list of rows.
        option: Name of the option that gave it, for messages: ``data.forget``.
    """
    if not isinstance(source, str | PathLike):
        rows = sound(option, option, _given(source, option))
    elif str(source).startswith(HUB):
        rows = _named_on_hub(str(source), option)
    else:
        rows = read_file(Path(source).expanduser(), option)
    if not rows.rows:
        raise UserError(f"'{rows.source}' holds no rows: give `{option}` at least one.")
    return rows


def _given(source: Any, option: str) -> list[object]:
    """Rows of an object of Python: a data frame, a data set of ``datasets``, or any rows or texts one after another."""
    if isinstance(source, dict):  # DatasetDict
        if len(source) != 1:
            raise UserError(f"`{option}` has the parts {', '.join(map(str, source))}: give one of them, or rows.")
        (source,) = source.values()
    if hasattr(source, "to_dict") and hasattr(source, "columns"):  # pandas, which may not be here
        source = map(_without_arrays, source.to_dict(orient="records"))
    try:
        rows = list(source)  # which may be a generator, or a data set that has positions alone
    except TypeError:
        raise UserError(f"`{option}` is {source!r}: give a file, or rows as a list of dictionaries.") from None
    for row in rows:
        if isinstance(row, PathLike) or (isinstance(row, str) and isfile(row)):
            raise UserError(f"`{option}` lists the file '{row}': give one file, a folder of texts, or rows.")
    return rows


def _without_arrays(row: dict[str, Any]) -> dict[str, Any]:
    """A row with lists where pandas holds arrays, as of a parquet file."""
    return {name: x.tolist() if hasattr(x, "tolist") else x for name, x in row.items()}


def _named_on_hub(source: str, option: str) -> Rows:
    owner, name, config, split = [*source.removeprefix(HUB).split("/"), "", "", "", ""][:4]
    if not owner or not name or source.count("/") > 3:
        raise UserError(
            f"'{source}' names no data set on the hub: write `{option}` {HUB}OWNER/NAME, {HUB}OWNER/NAME/CONFIG or "
            f"{HUB}OWNER/NAME/CONFIG/SPLIT."
        )
    return from_hub(f"{owner}/{name}", config or None, split or "train", option)


def from_hub(name: str, config: str | None, split: str, option: str) -> Rows:
    """Read the rows of a data set on the hub."""
    try:
        rows = load_hub_rows(name, config, split)
    except MemoryError:
        raise
    except Exception as error:  # so many does datasets raise at what it does not expect
        raise NotAtHand(
            f"'{name}' ({config}, {split}) cannot be loaded from the hub ({reason(error)}): set HF_HUB_OFFLINE=1 if "
            f"the hub's cache has it, or give `{option}` a file or folder that has it. `ofmu_pl quickstart` shows a "
            "run that downloads nothing."
        ) from error
    return sound(name, option, rows)


def read_part(source: str, file: str, config: str, split: str, option: str) -> Rows:
    """Read one part of a benchmark: a file of its folder, or a configuration on the hub."""
    folder = local_folder(source, option)
    if folder is not None:
        return read_file(below(folder, file, f"The part of `{option}`"), option)
    if "/" not in source:
        raise UserError(f"'{source}' does not exist: give `{option}` the benchmark's folder, or its hub id.")
    return from_hub(source, config, split, option)


def read_file(path: Path, option: str) -> Rows:
    """Read the rows of a file, or of a folder."""
    if path.is_dir():
        return _folder(path, option)
    if not regular(path).is_file():
        raise UserError(
            f"'{path}' is missing: give `{option}` a file, a folder of such, or {HUB}OWNER/NAME/CONFIG/SPLIT."
        )
    read = READERS.get(kind_of(path))
    if read is None:
        raise UserError(f"'{path}' is of no known kind: give `{option}` a folder of texts, or {', '.join(READERS)}.")
    return replace(sound(str(path), option, *read(path)), files=1)


def _folder(folder: Path, option: str) -> Rows:
    """Read all files of a folder as one source."""
    if any((folder / name).is_file() for name in SAVED):
        return _saved(folder, option)
    rows: list[Row] = []
    marks: list[str] = []
    paths = files_of(folder, option)
    for path in paths:
        part, name = read_file(path, option), f"'{path.relative_to(folder)}'"
        rows += part.rows
        marks += [name if kind_of(path) in TEXTS else f"{mark} of {name}" for mark in part.marks]
    return Rows(str(folder), option, rows, marks, len(paths))


def _saved(folder: Path, option: str) -> Rows:
    """Read what ``save_to_disk`` of the library datasets wrote."""
    from datasets import load_from_disk

    try:
        rows = _given(load_from_disk(str(folder)), option)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"'{folder}' is no data set that can be loaded ({reason(error)}): save it anew.") from error
    return replace(sound(str(folder), option, rows), files=len(list(folder.rglob("*.arrow"))))


def is_text(value: object) -> bool:
    """Whether a value is a text that says something."""
    return isinstance(value, str) and bool(value.strip())


def forgotten_rows(given: Sequence[int] | str | PathLike[str], n: int) -> list[int]:
    """Read and check the numbers of the rows to forget; sorted.

    >>> forgotten_rows([4, 1], 6)
    [1, 4]
    """
    numbers = _numbers_of(Path(given).expanduser()) if isinstance(given, str | PathLike) else list(given)
    check_numbers(numbers, n, "data.forget_rows")
    if not 0 < len(numbers) < n:
        raise UserError(f"`data.forget_rows` names {len(numbers)} of {n} rows: name one or more, and leave some.")
    return sorted(map(int, numbers))


def check_numbers(numbers: Sequence[int], n: int, option: str) -> None:
    """Refuse numbers of what is not there, and of what is named twice."""
    for number, times in Counter(numbers).items():
        check_range(0, n - 1, whole=True, **{option: number})  # type: ignore[arg-type]
        if times > 1:
            raise UserError(f"{option} has {number} {times} times: name each once.")


def _numbers_of(path: Path) -> list[int]:
    if not path.is_file():
        raise UserError(f"`data.forget_rows` '{path}' is no file: give one with a row number a line, or the numbers.")
    numbers = []
    for line, text in numbered_lines(path):
        try:
            numbers.append(int(text))
        except ValueError:
            raise UserError(f"Line {line} of '{path}' is no row number: give one a line.") from None
    return numbers
