"""Ctrl-C and SIGTERM (which schedulers send before they take a machine away): one sentence, exit code 130 or 143."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from ofmu_pl.support.escapes import visible

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SAME_LINE = "; the same line goes on: what has finished is not run again"
ADVICE = {
    "fit": "; the same line with --ckpt_path last goes on from the newest checkpoint, if there is one yet",
    **dict.fromkeys(("benchmark", "requests", "attack"), _SAME_LINE),
}
"""Advice on how to go on, by command."""

RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
"""Variables by which Lightning, torchrun and Slurm tell a process its rank."""


class Interrupted(SystemExit):
    """Raised where a signal ends the process; it is no error, so nothing on the way out takes it for one.

    Args:
        signum: The signal; the exit code is 128 more.
        then: The rest of the sentence: what the run left and how to go on; ``None``: the command's ``ADVICE``.
    """

    def __init__(self, signum: int, then: str | None = None) -> None:
        super().__init__(128 + signum)
        self.signum, self.then = signum, then


def end(signum: int, *_: object) -> NoReturn:
    """End the process in an orderly way; a second Ctrl-C ends it at once.

    Raises:
        Interrupted: Always.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise Interrupted(signum)


@contextmanager
def listening(handler: Callable[[int, FrameType | None], object] = end) -> Iterator[None]:
    """A context in which both signals are handled; a process that ignores one (``nohup``, workers) still does."""
    if threading.current_thread() is not threading.main_thread():  # where Python handles none
        yield
        return
    kept = {s: signal.getsignal(s) for s in SIGNALS}
    try:
        for s, before in kept.items():
            if before is not signal.SIG_IGN:
                signal.signal(s, handler)
        yield
    finally:
        for s, before in kept.items():
            signal.signal(s, before)


def kill(signum: int) -> None:
    """End the process at once by a signal, as if it had no handler."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


@contextmanager
def orderly(words: list[str]) -> Iterator[None]:
    """A context in which a command, by its ``words``, that is told to end says so in one sentence; of ranks the first.

    Raises:
        Interrupted: The command was told to end.
    """
    try:
        with listening():
            yield
    except Interrupted as told:
        if not any(int(os.environ.get(name) or 0) for name in RANKS):
            name = "Ctrl-C" if told.signum == signal.SIGINT else signal.Signals(told.signum).name
            then = ADVICE.get(words[0] if words else "", "") if told.then is None else told.then
            sys.stderr.write(f"ofmu_pl: stopped by {name}{visible(then)}.\n")
        raise
