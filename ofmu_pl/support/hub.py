"""Requests to the model hub, so that a machine without a network fails in seconds, not minutes."""

import os
import socket
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ofmu_pl.support.errors import UserError


def downloads_forbidden() -> bool:
    """Whether the user, or a dry run, wants nothing downloaded (HF_HUB_OFFLINE)."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")


@cache
def offline(timeout: float = 2.0) -> bool:
    """Whether loading by hub id can only come from the local cache.

    It is true if the user says so (HF_HUB_OFFLINE) or the hub's host does not answer (each of its addresses gets
    ``timeout`` seconds); behind a proxy this cannot be told, so the hub counts as reachable.
    """
    if downloads_forbidden():
        return True
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return False
    url = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        socket.create_connection((url.hostname or "huggingface.co", port), timeout).close()
    except OSError:
        return True
    return False


def local_folder(source: str | None, *arguments: str) -> Path | None:
    """The folder that a source names; ``None`` if there is none, and the source may be a hub id.

    Args:
        source: Name of a model or of data.
        arguments: Names of the arguments that can give it, for the message.

    Raises:
        UserError: The source is empty, a file, or a path to nothing, which cannot be a hub id.

    Example:
        >>> local_folder("gpt2", "path") is None
        True
    """
    given = " or ".join(f"`{argument}`" for argument in arguments)
    if not source:
        raise UserError(f"{given} is {source!r}: give a folder or a hub id.")
    path = Path(os.path.expanduser(source))  # which leaves the home of nobody alone
    if path.is_file():
        raise UserError(f"'{source}' is a file: point {given} at the folder that it lies in.")
    if path.is_dir():
        return path
    if source.startswith(("/", ".", "~")) or source.count("/") > 1:
        raise UserError(f"The folder '{source}' does not exist: point {given} at the right one, or at a hub id.")
    return None


def load_hub_rows(source: str, config: str | None, split: str) -> list[dict[str, Any]]:
    """Load the rows of a data set on the hub, or in the hub's cache.

    Raises:
        OSError: The hub does not answer (at once: datasets would try for half a minute) or refuses.
        ValueError: There is no such configuration or split.
    """
    from datasets import load_dataset

    if offline() and not downloads_forbidden():  # which leaves the cache
        raise ConnectionError("the hub does not answer")
    return [dict(row) for row in load_dataset(source, config, split=split)]
