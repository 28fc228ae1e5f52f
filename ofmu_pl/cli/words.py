"""Words of a command: what is wrong with them is one sentence on stderr."""

import argparse
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

from ofmu_pl.support.escapes import one_line

DRY_RUN = "--dry_run"
"""The word with which ``fit`` tries a configuration without its weights and devices."""


def fail(sentence: str, code: int = 1) -> NoReturn:
    """Say what is wrong, where and what to do, on stderr, and end the process: by 1, or by 2 where words are wrong."""
    sys.stderr.write(f"ofmu_pl: error: {one_line(sentence)}\n")
    sys.stderr.flush()
    sys.exit(code)


def unrecognized(message: str, options: Iterable[str]) -> str | None:
    """The sentence, without its full stop, for words that a parser does not know; ``None``: it says something else."""
    head, _, words = message.partition("unrecognized arguments: ")
    if head or not words:
        return None
    named = [word[2:].partition("=")[0] for word in words.split() if word.startswith("--")]
    if not named:
        return f"There is no place for '{words}'"
    return f"There is no option {', '.join(named)}" + nearest(named[0], options)


def nearest(word: str, options: Iterable[str]) -> str:
    """The end of a sentence that names the option nearest to a word that is none; empty: there is none near.

    >>> nearest("model.learning_rate", ["model.stepper", "model.optimizer"]), nearest("model.bet", ["model.beta"])
    (': did you mean model.optimizer.lr?', ': did you mean model.beta?')
    """
    section, _, name = word.rpartition(".")
    known, optimizer = list(options), f"{section}.optimizer"
    if name in ("lr", "learning_rate") and any(option.startswith(optimizer) for option in known):
        return f": did you mean {optimizer}.lr?"
    near = get_close_matches(word, known, n=1)
    return f": did you mean {near[0]}?" if near else ""


class WordsParser(argparse.ArgumentParser):
    """The parser of a command without configuration, whose errors are one line, without pages of usage."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(f"ofmu_pl {command}", description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with code 2."""
        options = [word[2:] for word in self._option_string_actions if word.startswith("--")]
        sentence = unrecognized(message, options) or f"{message[:1].upper()}{message[1:]}"
        fail(f"{sentence} (options: {self.prog} --help).", 2)
