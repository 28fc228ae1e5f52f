"""Words of a command: how a mistake in them is said."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

from ofmu_pl.cli.said import fail

DRY_RUN = "--dry_run"
"""The word with which ``fit`` tries a configuration without its weights and devices."""

_ARGUMENTS = {
    "model": "alpha cap damping engine gradient_clip inner_lr layer micro_batch_size network optimizer rates rho_0 "
    "scale scheduler",
    "model.network": "activation_checkpointing attention config lora module path tokenizer trust_remote_code",
    "data": "allow_cut alternatives chunk columns data dataset forget forget_rows forget_where full holdout max_length "
    "mean prompt_template retain size split_seed std test validation validation_fraction",
    "evaluation": "attack_samples own_metrics reference",
    "trainer": "precision",
}
_OPTIONS = {name: f"{section}.{name}" for section, names in _ARGUMENTS.items() for name in names.split()}
"""Options of the command line, by the argument that a message of the library names."""


def as_options(sentence: str) -> str:
    """A sentence of the library with options in the place of arguments.

    Args:
        sentence: What is wrong and what to do, with arguments as in the example.

    Example:
        >>> as_options("Say which it is by `columns={question: q}`.")
        "Say which it is by --data.columns '{question: q}'."
        >>> as_options("The network has kinks: set `engine=autograd`.")
        'The network has kinks: set --model.engine autograd.'
        >>> as_options("'x' is a file: point `path` at the folder that it lies in.")
        "'x' is a file: point --model.network.path at the folder that it lies in."
    """
    names = "|".join(_OPTIONS)
    found = rf"`({names})(?:=([^`]*))?`"
    return re.sub(found, lambda x: f"--{_OPTIONS[x[1]]}" + (f" {shlex.quote(x[2])}" if x[2] else ""), sentence)


def unrecognized(message: str, options: Iterable[str]) -> str | None:
    """The sentence for words that a parser does not know, with the nearest option that exists.

    Args:
        message: Message of the parser.
        options: Names of the options that the command has.

    Returns:
        A sentence without its full stop; ``None``: the message says something else.
    """
    words = re.match("unrecognized arguments: (.*)", message)
    if words is None:
        return None
    named = [word[2:].partition("=")[0] for word in words[1].split() if word.startswith("--")]
    if not named:
        return f"There is no place for '{words[1]}'"
    many = "are no options --" if len(named) > 1 else "is no option --"
    return f"There {many}{', --'.join(named)}" + nearest(named[0], options)


def nearest(word: str, options: Iterable[str]) -> str:
    """The end of a sentence that names the option nearest to a word that is none; empty: there is none near.

    >>> nearest("model.learning_rate", ["model.rates", "model.optimizer"]), nearest("model.bet", ["model.beta"])
    (': did you mean --model.optimizer.lr?', ': did you mean --model.beta?')
    """
    section, _, name = word.rpartition(".")
    known, optimizer = list(options), f"{section}.optimizer"
    if name in ("lr", "learning_rate") and optimizer in known:
        return f": did you mean --{optimizer}.lr?"
    near = get_close_matches(word, known, n=1)
    return f": did you mean --{near[0]}?" if near else ""


class Words(argparse.ArgumentParser):
    """The parser of a command without configuration, whose errors are one line, without pages of usage.

    Args:
        command: Name of the command.
        description: What it does, for its help.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(f"ofmu_pl {command}", description=description, allow_abbrev=False)
        self._command = command

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with code 2."""
        options = [word[2:] for action in self._actions for word in action.option_strings if word.startswith("--")]
        sentence = unrecognized(message, options) or f"{message[:1].upper()}{message[1:]}"
        fail(f"{sentence} (options: python -m ofmu_pl {self._command} --help).", 2)
