"""Keeps results by content: named by the facts they follow from, checked by their sums, made anew if damaged."""

import hashlib
import json
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below, file_hash, finite, read_json, sweep, write_text
from ofmu_pl.support.processes import from_first
from ofmu_pl.support.records.reading import NewerError, Record
from ofmu_pl.support.version import key_of

Known = TypeVar("Known", bound=Record)

SUMS = "SHA256SUMS"  # file of a folder with the sums of all others, as `sha256sum --check` reads it


def cache_folder() -> Path | None:
    """Where results are kept by content: OFMU_CACHE, by default ~/.cache/ofmu_pl.

    Returns:
        The folder; ``None`` if OFMU_CACHE is set but empty, or the user has no home.
    """
    named = os.environ.get("OFMU_CACHE")
    if named is None:
        try:
            return Path.home() / ".cache" / "ofmu_pl"
        except RuntimeError:
            return None
    return Path(named).expanduser() if named else None


def content_path(folder: Path, kind: str, facts: object) -> Path:
    """Where a result is kept that follows from ``facts`` and this version of the code alone."""
    return folder / f"{kind}-{key_of(facts)}.json"


def read_kept(path: Path) -> Any:
    """Read what ``keep`` stored; ``None`` if there is nothing, or (with a warning) if it is damaged."""
    try:
        stored = read_json(path)
        if stored["sha256"] == _sum_of(stored["content"]):
            return stored["content"]
        problem = "does not match its checksum"
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"cannot be read ({type(error).__name__})"
    warn_damaged(path, problem)
    return None


def read_record(kind: type[Known], path: Path) -> Known | None:
    """Read a record that is written anew anyway; ``None`` if there is none, or (with a warning) if it is damaged.

    Raises:
        NewerError: A newer version of ofmu_pl wrote it.
    """
    try:
        return kind.read(path)
    except NewerError:
        raise
    except FileNotFoundError:
        return None
    except UserError:
        warn_damaged(path, "cannot be read")
        return None


def read_shared(path: Path | None) -> Any:
    """Read what was kept; what the first rank finds holds for all, so that all ranks measure or none does."""
    return from_first(lambda: None if path is None else read_kept(path))


def warn_damaged(path: Path, problem: str) -> None:
    """Warn that something kept is damaged and is made anew."""
    rank_zero_warn(f"'{path}' {problem}: it is made anew.")


def keep(path: Path, content: object) -> None:
    """Store what JSON can hold, with its sum; if that fails, the run goes on with a warning."""
    content = finite(content)
    try:
        sweep(path.parent)
        write_text(path, json.dumps({"sha256": _sum_of(content), "content": content}, allow_nan=False))
    except OSError as error:
        warn_not_kept(path.parent, error)


def warn_not_kept(folder: Path, error: OSError) -> None:
    """Warn that a folder takes no files: it is full, or may only be read."""
    rank_zero_warn(
        f"Nothing can be kept in '{folder}' ({error.strerror}), so the next run computes it again: free some space "
        "there, or name another folder by OFMU_CACHE."
    )


def write_sums(folder: Path) -> None:
    """Write the sums of all files in a folder beside them."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != SUMS)
    (folder / SUMS).write_text("".join(f"{file_hash(p)}  {p.relative_to(folder)}\n" for p in files))


def renew_sum(path: Path) -> None:
    """Write a file's sum anew where its folder's sums have one; the others stay, so that no damage is hidden."""
    sums = path.with_name(SUMS)
    if sums.is_file():
        line = f"{file_hash(path)}  {path.name}"
        text = sums.read_text(encoding="utf-8", errors="surrogateescape")
        renewed = re.sub(rf"(?m)^\w+  {re.escape(path.name)}$", line, text)
        write_text(sums, renewed, errors="surrogateescape")


def damage(folder: Path) -> str | None:
    """What is wrong with a folder whose sums ``write_sums`` wrote, as the end of a sentence; ``None``: nothing.

    Files that have not changed since this process hashed them are not hashed again.
    """
    try:
        return _damage(folder, tuple((p, p.stat().st_ctime_ns) for p in sorted(folder.rglob("*"))))
    except (OSError, ValueError):
        return f"has no readable {SUMS}"


@lru_cache(maxsize=16)
def _damage(folder: Path, changed: tuple[tuple[Path, int], ...]) -> str | None:
    lines = (folder / SUMS).read_text().splitlines()
    for line in lines:
        expected, name = line.split("  ", 1)
        if not below(folder, name, SUMS).is_file():
            return f"lacks its file '{name}'"
        if file_hash(folder / name) != expected:
            return f"is damaged (its file '{name}' does not match its checksum)"
    return None if lines else f"has no readable {SUMS}"


def require_undamaged(folder: Path, together: bool = False) -> None:
    """Refuse a model whose files are not those that were exported; a folder without sums is another program's.

    Where all ranks ask ``together``, the first one reads the files and tells the others.

    Raises:
        UserError: A file does not match its sum, or is gone.
    """

    def find() -> str | None:
        return damage(folder) if (folder / SUMS).exists() else None

    problem = from_first(find) if together else find()
    if problem is not None:
        raise UserError(f"The model in '{folder}' {problem}: export it again; if you changed it, remove {SUMS} there.")


def _sum_of(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
