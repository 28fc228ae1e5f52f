"""Reads records: checks their schema and the shapes of their parts.

A reader finds what a record's fields declare. Metrics are not checked: they are entries as ``MetricResult.as_dict``
gives them, and a report names those that are missing or not finite.
"""

from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import read_json, write_json

SCHEMA = 1
"""Add 1 in every commit after which an older reader would misunderstand a file; a new entry alone is no such change."""
Entries = dict[str, dict[str, Any]]  # metrics by name: value, n, direction, target, definition and more
_types = cache(get_type_hints)  # of a dataclass's fields, by name


class NewerError(UserError):
    """A file was written by a later version of ofmu_pl, in which it may mean something else."""


@dataclass
class Record:
    """A file of this package: its fields, and the number of its schema."""

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        write_json(path, {"schema": SCHEMA, **self._content()})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of this schema or of an older one.

        Raises:
            OSError: The file is missing or cannot be read.
            NewerError: The file has a newer schema.
            UserError: ofmu_pl did not write the file.
        """
        try:
            content = read_json(path)
            schema = int(content.get("schema", 0))
            found = cls._of(content) if schema <= SCHEMA else None
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise UserError(
                f"'{path}' is no {path.name} that ofmu_pl wrote ({why(error)}): put back what it wrote, or remove it."
            ) from error
        if found is None:
            raise NewerError(
                f"'{path}' is of schema {schema}, which a newer ofmu_pl wrote (here: {SCHEMA}): update it."
            )
        return found

    def _content(self) -> dict[str, Any]:
        """What is written of the fields."""
        return asdict(self)

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        """The record of a file's content; raises what indexing and converting raise if it is of another shape."""
        found: Self = declared(cls, content, "the file")
        return found


def why(error: Exception) -> str:
    """What is wrong with a file, in the words of the error that it led to."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def declared(kind: Any, x: object, name: str) -> Any:
    """What a file holds, as the type that a field declares.

    An entry that a dataclass lacks has its default, or is ``None`` where its type allows that; others are ignored.

    Args:
        kind: A dataclass, or the type of a field of one.
        x: What the file has; ``None`` stands for an empty list, dictionary or dataclass, too.
        name: The entry's name, for the error.

    Raises:
        KeyError: A dataclass lacks an entry.
        TypeError: The entry is something else.
        ValueError: The entry is no number.

    Example:
        >>> declared(dict[str, list[int]], {"a": [1], "b": None}, "rows")
        {'a': [1], 'b': []}
    """
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer in (Union, UnionType):
        known = [part for part in inner if part is not NoneType]
        if len(known) < len(inner) and (x is None or (x == {} and is_dataclass(known[0]))):
            return None  # a record that may be missing and is empty is missing
        return declared(known[0], x, name) if len(known) == 1 else x
    if is_dataclass(outer):
        return _filled(outer, _as(dict, x, name))
    if outer is dict:
        return {key: declared(inner[1], part, key) for key, part in _as(dict, x, name).items()}
    if outer is list:
        return [declared(inner[0], part, name) for part in _as(list, x, name)]
    return outer(x) if outer in (str, int, bool) else x


def _as(kind: type, x: object, name: str) -> Any:
    x = kind() if x is None else x
    if not isinstance(x, kind):
        raise TypeError(f"{name} is no {'object' if kind is dict else 'list'}")
    return x


def _filled(kind: Any, x: dict[str, Any]) -> Any:
    found = {}
    for field in fields(kind):
        expected = _types(kind)[field.name]
        optional = NoneType in get_args(expected)
        if x.get(field.name) is not None or (field.name in x and optional):
            found[field.name] = declared(expected, x[field.name], field.name)
        elif field.default is MISSING and field.default_factory is MISSING:
            if not optional:
                raise KeyError(field.name)
            found[field.name] = None
    return kind(**found)
