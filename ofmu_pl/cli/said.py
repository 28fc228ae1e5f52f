"""Sentences on stderr that say what is wrong; what several ranks have to say alike, one of them says."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
from datetime import timedelta
from typing import NoReturn

GRACE = 2.0
"""Seconds that a rank waits for the others before it ends: rank 0 may hold the store by which they ask each other."""

POLL = 0.05
"""Seconds between two looks at how many ranks have come."""


def say(sentence: str) -> None:
    """Say what is wrong on stderr, as every message of the program begins."""
    sys.stderr.write(f"ofmu_pl: error: {sentence}\n")
    sys.stderr.flush()


def fail(sentence: str, code: int = 1) -> NoReturn:
    """Say what is wrong on stderr, unless another rank has said the same, and end the process.

    Args:
        sentence: What is wrong, where, and what to do.
        code: The exit code: 1, or 2 where the words are wrong.

    Raises:
        SystemExit: Always.
    """
    ranks = _ranks()
    if ranks == 1 or not _say_once(sentence, ranks):
        say(sentence)
    sys.exit(code)


def _say_once(sentence: str, ranks: int) -> bool:
    """Say the sentence if this rank is the first that comes with it; ``False``: the ranks cannot ask each other.

    They do so by the store that torchrun's agent or rank 0 holds at the address that every rank knows.
    """
    from torch.distributed import DistError, TCPStore

    address = os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT") or 0)
    started = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")  # torchrun's store outlives a start
    key = f"ofmu_pl/said/{started}/{hashlib.sha256(sentence.encode()).hexdigest()}"
    said = False
    try:
        with socket.create_connection(address, timeout=GRACE):  # torch would warn in words of its own
            pass
        store = TCPStore(*address, is_master=False, timeout=timedelta(seconds=GRACE), wait_for_workers=False)
        came, end = store.add(key, 1), time.monotonic() + GRACE
        if came == 1:
            say(sentence)
        said = True
        while came < ranks and time.monotonic() < end:
            time.sleep(POLL)
            came = store.add(key, 0)
    except (OSError, DistError):  # nobody is there, or no longer
        pass
    return said


def _ranks() -> int:
    """How many ranks the run has."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None:  # no run, but words that are wrong
        return 1
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return int(os.environ.get("WORLD_SIZE") or 1)
