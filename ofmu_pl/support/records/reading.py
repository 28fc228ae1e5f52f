"""Reads records: checks their schema and the shapes of their parts.

A reader finds a dictionary where it expects one. The numbers inside are not checked: metrics are entries as
``MetricResult.as_dict`` gives them, and a report names those that are missing or not finite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import read_json, write_json

SCHEMA = 1
"""Add 1 in every commit after which an older reader would misunderstand a file; a new entry alone is no such change."""
Entries = dict[str, dict[str, Any]]
"""Metrics by name: value, n, direction, target, definition, ..."""


class NewerError(UserError):
    """A file was written by a later version of ofmu_pl, in which it may mean something else."""


@dataclass
class Record(ABC):
    """A file of this package: its fields, and the number of its schema."""

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        write_json(path, {"schema": SCHEMA, **self._content()})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of this schema or of an older one.

        Args:
            path: The file.

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
                f"'{path}' is no {path.name} that ofmu_pl wrote ({why(error)}): put back the one that it wrote, or "
                "remove it."
            ) from error
        if found is None:
            raise NewerError(
                f"'{path}' is of schema {schema}, which a newer ofmu_pl wrote (this one reads up to {SCHEMA}): update "
                "ofmu_pl."
            )
        return found

    def _content(self) -> dict[str, Any]:
        """What is written of the fields."""
        return asdict(self)

    @classmethod
    @abstractmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        """The record of a file's content; raises what indexing and converting raise if it is of another shape."""


def why(error: Exception) -> str:
    """What is wrong with a file, in the words of the error that it led to."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def section(x: dict[str, Any], name: str) -> dict[str, Any]:
    """An object of the file; empty where it is missing or ``null``.

    Raises:
        TypeError: The entry is something else.
    """
    part = x.get(name) or {}
    if not isinstance(part, dict):
        raise TypeError(f"{name} is no object")
    return part


def items(x: dict[str, Any], name: str) -> list[Any]:
    """A list of the file; empty where it is missing or ``null``.

    Raises:
        TypeError: The entry is something else.
    """
    part = x.get(name) or []
    if not isinstance(part, list):
        raise TypeError(f"{name} is no list")
    return part


def entries(x: dict[str, Any], name: str) -> Entries:
    """An object of objects, such as metrics by name; empty where it is missing or ``null``.

    Raises:
        TypeError: The entry is something else.
    """
    part = section(x, name)
    if not all(isinstance(entry, dict) for entry in part.values()):
        raise TypeError(f"{name} holds what is no object")
    return part
