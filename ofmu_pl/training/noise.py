"""What a run has to say and nobody can use: warnings without a remedy, and in a notebook the talk of trainers."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_NOISE = (
    r"Found \d+ module\(s\) in eval mode at the start of training",  # on purpose: no dropout, frozen statistics
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning's own code under torch 2.15
    r"LightningCLI's args parameter is intended to run from within Python",  # main looks at the first word
    r"`gradient_checkpointing_enable` is deprecated",  # transformers 5.0 does not know the new name yet
    r"Checkpoint directory .* exists and is not empty",  # a run goes on in its own folder
    r"Experiment logs directory .* exists and is not empty",  # as before
    r"Using ModelCheckpoint with manual optimization and every_n_train_steps",  # saving after the step is what we want
)
"""Beginnings of warnings that a user can do nothing about, each with its reason."""
_TALKERS = ("lightning.pytorch", "lightning.fabric")
"""Loggers that say which devices there are, and which files were written."""


def ignore_noise() -> None:
    """Show none of the warnings that a user can do nothing about."""
    for message in _NOISE:
        warnings.filterwarnings("ignore", message)


@contextmanager
def quiet() -> Iterator[None]:
    """A context in which a run says what is wrong and nothing else; filters and loggers are as before after it."""
    loggers = [logging.getLogger(name) for name in _TALKERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        ignore_noise()
        try:
            for logger in loggers:
                logger.setLevel(logging.WARNING)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
