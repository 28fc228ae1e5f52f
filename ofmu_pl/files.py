"""Writing outputs so that a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, file or folder, that takes its place if the block succeeds.

    What it holds is on the disk before the name points at it, so a power cut leaves the old content or the new.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
        for file in temporary.rglob("*") if temporary.is_dir() else [temporary]:
            _sync(file)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    if path.is_symlink():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1."""
    # Not splitlines(): JSON strings may hold other separators, such as U+2028, as they are.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            yield number, line


def cache_folder() -> Path | None:
    """Where results are kept by content: OFMU_CACHE, by default ~/.cache/ofmu_pl; ``None`` if it is set but empty."""
    named = os.environ.get("OFMU_CACHE")
    if named is None:
        return Path.home() / ".cache" / "ofmu_pl"
    return Path(named).expanduser() if named else None


def content_path(folder: Path, kind: str, facts: Any) -> Path:
    """Where a result is kept that follows from ``facts`` alone."""
    return folder / f"{kind}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]}.json"


def write_json(path: Path, content: Any) -> None:
    """Write JSON that strict parsers read: NaN and infinities become null."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(_finite(content), indent=2, allow_nan=False) + "\n")


def _finite(x: Any) -> Any:
    if isinstance(x, dict):
        return {str(k): _finite(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(v) for v in x]
    if isinstance(x, float) and not math.isfinite(x):
        return None
    return x
