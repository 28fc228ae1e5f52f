"""Errors that a user can mend: one sentence each, which the command line prints without a traceback."""

from __future__ import annotations

from math import inf

MAX_SEED = 2**32 - 1
"""NumPy's largest seed."""


class UserError(ValueError):
    """Something the user can mend: the message says what is wrong, where, and what to do, in one sentence."""


class NotAtHand(UserError):
    """Something is not on this machine and would have to be downloaded, which failed or was forbidden."""


class DivergedError(RuntimeError):
    """The optimisation produced non-finite or exploding numbers; the weights in memory are not to be used."""


def check_range(low: float, high: float = inf, *, above: bool = False, **values: float | None) -> None:
    """Refuse options that are out of their range.

    Args:
        low: Least value.
        high: Largest value.
        above: Whether ``low`` itself is refused too.
        values: Values by option; ``None`` is always in range, since it switches an option off.

    Raises:
        UserError: A value is out of range or not a number; the error names the first one.
    """
    for name, value in values.items():
        if value is None or (low <= value <= high and not (above and value == low)):
            continue
        wanted = f"a value from {low} to {high}" if high < inf else f"more than {low}" if above else f"{low} or more"
        raise UserError(f"{name}={value} is out of range: give {wanted}.")
