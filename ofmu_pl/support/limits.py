"""A limit of time for what configurations and models bring: expressions, chat templates, layers."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ofmu_pl.support.errors import UserError

LONGEST = 10.0  # seconds that an expression or a template may take; each needs milliseconds


@contextmanager
def within(what: str, more: float = 0.0) -> Iterator[None]:
    """Stop what takes longer than ``LONGEST``; only the main thread of systems that have alarms can.

    Args:
        what: What is limited, for the message.
        more: Seconds that it may take beyond these, by its size.

    Raises:
        UserError: The time is over.

    Example:
        >>> with within("The sum"):
        ...     sum(range(3))
        3
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: object) -> NoReturn:
        raise UserError(f"{what} takes more than {LONGEST + more:g} seconds: write it more simply.")

    before = signal.signal(signal.SIGALRM, stop)
    left, _ = signal.setitimer(signal.ITIMER_REAL, LONGEST + more)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)  # another's alarm, if there is one
