"""Errors that a user can mend: one sentence each, which the command line prints without a traceback."""

from math import inf
from typing import SupportsIndex

MAX_SEED = 2**32 - 1  # NumPy's largest seed


class UserError(ValueError):
    """Something the user can mend: the message says what is wrong, where, and what to do, in one sentence."""


class NotAtHand(UserError):
    """Something is not on this machine and would have to be downloaded, which failed or was forbidden."""


class DivergedError(RuntimeError):
    """The optimisation produced non-finite or exploding numbers; the weights in memory are not to be used."""


def reason(error: BaseException) -> str:
    """The first line of what an error says, without its full stop, or its class where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def memory_is_full(error: BaseException) -> bool:
    """Whether the system had no memory left: Python, torch, a library that is loaded or a thread say it each."""
    said = ("can't allocate memory", "cannot allocate memory", "failed to map segment", "can't start new thread")
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in said)


def check_range(
    low: float, high: float = inf, *, above: bool = False, whole: bool = False, **values: float | None
) -> None:
    """Refuse options that are out of their range, or no numbers, as Python may give them.

    Args:
        low: Least value.
        high: Largest value.
        above: Whether ``low`` itself is refused too.
        whole: Whether fractions are refused, and floats that have none: what counts takes integers.
        values: Values by option; ``None`` is always in range, since it switches an option off.

    Raises:
        UserError: A value is out of range, no number or no whole one; the error names the first one.
    """
    wanted = f"a value from {low} to {high}" if high < inf else f"more than {low}" if above else f"{low} or more"
    for name, value in values.items():
        if value is None:
            continue
        try:
            within = low <= value <= high and not (above and value == low)
        except (TypeError, ValueError):  # texts; arrays of several numbers
            raise UserError(f"{name}={value!r} is no number: give {wanted}.") from None
        if not within:
            raise UserError(f"{name}={value} is out of range: give {wanted}.")
        if whole and (isinstance(value, bool) or not isinstance(value, SupportsIndex)):  # NumPy's integers are such
            raise UserError(f"{name}={value} is no integer: give {wanted}.")
