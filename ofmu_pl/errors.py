"""Errors that are the user's to mend: one sentence each, printed without a traceback by the command line."""

from __future__ import annotations


class UserError(ValueError):
    """Something the user can mend: the message says what is wrong, where, and what to do, in one sentence."""


class DivergedError(RuntimeError):
    """The optimisation produced non-finite or exploding numbers; the weights in memory are not to be used."""
