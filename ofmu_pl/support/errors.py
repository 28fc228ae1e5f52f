"""Errors that are the user's to mend: one sentence each, printed without a traceback by the command line."""

from __future__ import annotations

from math import inf

MAX_SEED = 2**32 - 1
"""NumPy's largest."""


class UserError(ValueError):
    """Something the user can mend: the message says what is wrong, where, and what to do, in one sentence."""


class DivergedError(RuntimeError):
    """The optimisation produced non-finite or exploding numbers; the weights in memory are not to be used."""


def check_range(low: float, high: float = inf, *, above: bool = False, **values: float | None) -> None:
    """Refuse options that are out of their range.

    Args:
        low: Least value.
        high: Largest value.
        above: Whether ``low`` itself is refused too.
        values: By option; ``None`` is always in range, since it switches an option off.

    Raises:
        UserError: The first that is not, also where it is not a number.
    """
    for name, value in values.items():
        if value is None or (low <= value <= high and not (above and value == low)):
            continue
        wanted = f"a value from {low} to {high}" if high < inf else f"more than {low}" if above else f"{low} or more"
        raise UserError(f"{name}={value} is out of range: give {wanted}.")
