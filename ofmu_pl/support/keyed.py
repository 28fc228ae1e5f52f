"""Hashes of texts by a key that a run's folder holds."""

import hmac
import secrets
from pathlib import Path

from ofmu_pl.support.files import replacing
from ofmu_pl.support.kept import warn_damaged

_BYTES = 32
KEY = "samples.key"
"""File of a run with the key of its hashes: without it a text that can be guessed is not found by its hash."""


def key_of(folder: Path) -> bytes:
    """The key that a run's folder holds.

    Raises:
        OSError: There is no key.
        ValueError: The key is damaged.
    """
    key = bytes.fromhex((folder / KEY).read_text())
    if len(key) != _BYTES:
        raise ValueError(f"{KEY} has {len(key)} bytes")
    return key


def hashed(text: str, key: bytes) -> str:
    """The HMAC-SHA-256 of a text, by which whoever has the text and the key finds it again.

    >>> hashed("Who?", bytes(32))[:24]
    'hmac-sha256:12f0b7acf42f'
    """
    return f"hmac-sha256:{hmac.digest(key, text.encode(), 'sha256').hex()}"


def make_key(folder: Path) -> bytes:
    """The key of a folder's hashes, which is written, for the user alone to read, unless a whole one is there."""
    try:
        return key_of(folder)
    except FileNotFoundError:
        pass
    except ValueError:
        warn_damaged(folder / KEY, "is damaged")
    with replacing(folder / KEY) as temporary:
        temporary.touch(0o600)
        temporary.write_text(secrets.token_hex(_BYTES))
    return key_of(folder)
