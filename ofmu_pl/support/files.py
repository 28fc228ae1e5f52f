"""Files: outputs appear whole or not at all, names never lead out of a folder, JSON never fills the memory."""

import errno
import fcntl
import gzip
import hashlib
import json
import math
import os
import re
import shutil
import time
import warnings
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

from ofmu_pl.support.errors import UserError

_NOT_WRITTEN = re.compile(r"PytorchStreamWriter|inline_container|I/O error: .*\(os error (\d+)\)")
"""Messages by which torch and safetensors say that a file could not be written to its end; torch says not why."""
HOUR, DAY = 3600, 86400
_HALF = re.compile(r"\..+\.(\d+)\.partial")
_LACKING = (errno.ENOSYS, errno.EOPNOTSUPP)  # errors of a disk that lacks what it is asked for
LARGEST_JSON = 2**28  # largest size in bytes; a run's largest file, a reference with all of TOFU's scores: 1 % of it
LARGEST_LINE = 2**24  # largest size in bytes; the longest documents of corpora have a tenth of it
LARGEST_TABLE = 2**22  # most rows of a table; some kilobytes of parquet can stand for more than memory holds


def below(folder: Path, name: str, option: str) -> Path:
    """The path of a name below a folder.

    Args:
        folder: Folder that the path must stay in.
        name: A name from a configuration or a file, which may have several parts.
        option: The option that gave the name, for the message.

    Raises:
        UserError: The name is empty, begins at a root or climbs by ``..``.
    """
    path = Path(name)
    if not path.parts or path.anchor or ".." in path.parts:
        raise UserError(f"{option} '{name}' leads out of '{folder}': give a name that has no '..' and no '/' in front.")
    return folder / path


def leads_out(folder: Path, path: Path) -> bool:
    """Whether a path below a folder leads to another place by links."""
    return not path.resolve().is_relative_to(folder.resolve())


def regular(path: Path) -> Path:
    """A path to read from, unless it is a pipe or a device, which may never end and is refused."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"'{path}' is a pipe or a device, which may never end: give a file.")
    return path


def read_json(path: Path) -> Any:
    """Read a JSON file that somebody else may have written.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no JSON, too large, or nested too deeply.
    """
    if regular(path).stat().st_size > LARGEST_JSON:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, more than {LARGEST_JSON}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, file or folder, that takes its place if the block succeeds.

    Its content is on the disk before the name points at it, so a power cut leaves the old content or the new. A folder
    that has files cannot be replaced in one step: its old content is first renamed, and comes back if the new one
    cannot take the name.

    Raises:
        OSError: The path cannot be written; the error names it, also where a library says in words of its own that the
            disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, old = (path.with_name(f".{path.name}{part}.{os.getpid()}.partial") for part in ("", ".old"))
    try:
        erase(temporary)  # of a process of this number that was killed: containers give numbers again
        yield temporary
        if not temporary.is_symlink():
            for file in temporary.rglob("*") if temporary.is_dir() else [temporary]:
                _sync(file)
        aside = path.is_dir() and not path.is_symlink()
        if aside:
            erase(old)
            os.replace(path, old)
        try:
            os.replace(temporary, path)
        except OSError:
            if aside:
                os.replace(old, path)
            raise
        _sync(path.parent)
        if aside:
            shutil.rmtree(old)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    except Exception as error:
        if code := not_written(error):
            raise OSError(code, os.strerror(code), str(path)) from error
        raise
    finally:
        erase(temporary)


def erase(path: Path) -> None:
    """Remove a file, a folder or a link, if it is there, and never what a link points at."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sweep(folder: Path, rest: float = HOUR) -> None:
    """Remove what killed processes left half-written in a folder.

    What a living process of that number may be writing stays for a day.

    Args:
        folder: The folder.
        rest: Seconds for which all else stays untouched: a process on another machine may share the folder.
    """
    for path in folder.glob(".*.partial"):
        # It may have just been moved into place, or be another user's; or its number is none of a process.
        with suppress(OSError, OverflowError):
            idle = time.time() - max(p.stat().st_mtime for p in (path, *path.rglob("*")))
            named = _HALF.fullmatch(path.name)
            if named and idle > (DAY if psutil.pid_exists(int(named[1])) else rest):
                erase(path)


def not_written(error: BaseException) -> int | None:
    """The system's number of why torch or safetensors could not write a file, which they say in their own words."""
    found = _NOT_WRITTEN.search(str(error))
    return found and int(found[1] or errno.ENOSPC)


@contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[IO[str]]:
    """Hold a file's lock, which the system frees when the process ends, however it ends.

    Where the disk has no locks (some network disks), there is only a warning.

    Args:
        path: The file, which is made if it is not there, and stays.
        wait: Whether to wait until another process frees the lock.

    Raises:
        BlockingIOError: Another process holds the lock, and ``wait`` is off.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666), "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in (*_LACKING, errno.ENOLCK):
                raise
            warnings.warn(
                f"'{path.parent}' lies on a disk without file locks, so nothing keeps two processes out of one folder: "
                "do not start the same run twice at once.",
                stacklevel=2,
            )
        yield file


def _sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk, where it can say so."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (*_LACKING, errno.EINVAL):
            raise
        warnings.warn(
            "The disk cannot say when files are written (fsync): a power cut may leave them half-written.", stacklevel=2
        )
    finally:
        os.close(handle)


def opened(path: Path) -> IO[bytes]:
    """Open a file to read its bytes, unpacked where its name ends with ``.gz``."""
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a UTF-8 file that are not blank, with their numbers from 1, without a mark before the first one.

    Raises:
        UserError: A line is longer than ``LARGEST_LINE``, or the file is in another encoding.
    """
    # Not splitlines(): JSON strings may hold other separators, such as U+2028, as they are.
    with opened(regular(path)) as file:
        for number, line in enumerate(iter(lambda: file.readline(LARGEST_LINE + 1), b""), start=1):
            if len(line) > LARGEST_LINE:
                raise UserError(f"Line {number} of '{path}' has more than {LARGEST_LINE} bytes: give one row a line.")
            _check_utf8(path, number, line)
            text = line.removeprefix(BOM_UTF8) if number == 1 else line
            if text.strip():
                yield number, text


def _check_utf8(path: Path, number: int, line: bytes) -> None:
    """Refuse a line in another encoding, which the error names if it can be told."""
    wide = 4 * line.count(b"\0") > len(line)
    try:
        line.decode()
    except UnicodeDecodeError as error:
        if not wide:
            # Windows' quotes and dashes are control characters in Latin-1, which no text has.
            encoding = "CP1252" if any(0x80 <= byte < 0xA0 for byte in line) else "LATIN1"
            raise UserError(
                f"Line {number} of '{path}' is not in UTF-8 (byte {line[error.start]:#x} at {error.start}; perhaps in "
                f"{encoding}): convert the file, for example by iconv -f {encoding} -t UTF-8."
            ) from None
    if b"\0" in line and not wide:  # JSON writes this character as \u0000
        raise UserError(f"Line {number} of '{path}' has a NUL character: take it out.")
    if wide:
        raise UserError(f"'{path}' is in UTF-16 or UTF-32, not in UTF-8: convert it, for example by iconv -t UTF-8.")


def check_whole(value: object, place: str) -> None:
    r"""Refuse texts with half a character (a lone surrogate, ``\ud83d``): JSON can hold it, no tokenizer takes it.

    Raises:
        UserError: A text in it cannot be written in UTF-8.
    """
    try:
        json.dumps(value, ensure_ascii=False, default=str, skipkeys=True).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start]).strip("'")
        raise UserError(
            f"{place} has half a character ({half} without its other half): write the character whole, or remove it."
        ) from None


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_hash(text: str) -> str:
    """The first 16 hexadecimal digits of SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write a text in UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)


def write_json(path: Path, content: object) -> None:
    """Write JSON that strict parsers read: NaN and infinities become null."""
    write_text(path, json.dumps(finite(content), indent=2, allow_nan=False) + "\n")


def finite(x: object) -> object:
    """Make lists and dictionaries fit for JSON: NaN and infinities become ``None``, tuples lists."""
    if isinstance(x, dict):
        return {str(k): finite(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [finite(v) for v in x]
    if isinstance(x, float) and not math.isfinite(x):
        return None
    return x


def texts_in(value: object) -> Iterator[str]:
    """All texts in a value of JSON, but the names of fields."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_in(part)
