"""What a run has to say and nobody can use: warnings without a remedy, and in a notebook the talk of trainers."""

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ofmu_pl.support.escapes import one_line, visible

_NOISE = (
    r"Found \d+ module\(s\) in eval mode at the start of training",  # on purpose: no dropout, frozen statistics
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning's own code under torch 2.15
    r"LightningCLI's args parameter is intended to run from within Python",  # main looks at the first word
    r"`gradient_checkpointing_enable` is deprecated",  # transformers 5.0 does not know the new name yet
    r"Checkpoint directory .* exists and is not empty",  # a run goes on in its own folder
    r"Experiment logs directory .* exists and is not empty",  # as before
    r"\s*Unable to serialize instance \w+\s*$",  # a network of torchvision's by its name: tried as a class first
    r"Using ModelCheckpoint with manual optimization and every_n_train_steps",  # saving after the step is what we want
)
"""Beginnings of warnings that a user can do nothing about, each with its reason."""
_OTHERS = warnings.formatwarning
_TALKERS = ("lightning.pytorch", "lightning.fabric")
"""Loggers that say which devices there are, and which files were written."""
SILENT: dict[str, Any] = {
    "max_epochs": -1,
    "limit_val_batches": 0,
    "logger": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
}
"""Options of a trainer that ends by its steps alone, and that shows and writes nothing by itself."""
_IDLE = {
    "lightning.pytorch.utilities.rank_zero": ("TPU available: False", "\N{ELECTRIC LIGHT BULB} Tip: "),
    "bitsandbytes.backends.cpu.ops": ("Failed to load CPU gemm_4bit_forward",),  # said by whoever imports peft
}
"""Beginnings of what loggers say of things that nobody asked for."""


def ignore_noise() -> None:
    """Show none of the warnings that a user can do nothing about."""
    for message in _NOISE:
        warnings.filterwarnings("ignore", message)
    for name in _IDLE:
        logging.getLogger(name).addFilter(_is_news)
    for handler in logging.getLogger("transformers").handlers:
        handler.addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    record.msg, record.args = visible(record.getMessage()), ()  # names of others may be in it
    return not record.msg.startswith(_IDLE.get(record.name, ("\0",)))


def as_sentence(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of ours as a sentence, without a line of code below it; for ``warnings.formatwarning``."""
    if category is UserWarning and "ofmu_pl" in Path(filename).parts:
        return f"ofmu_pl: warning: {one_line(message)}\n"
    return visible(_OTHERS(message, category, filename, lineno, line))


def said_again(arguments: threading.ExceptHookArgs) -> None:
    """What ``threading.excepthook`` does: a disk's error in TensorBoard's thread is raised again where the run is."""
    if not isinstance(arguments.exc_value, OSError):
        threading.__excepthook__(arguments)


@contextmanager
def quiet() -> Iterator[None]:
    """A context in which a run says what is wrong and nothing else; filters and loggers are as before after it."""
    levels = {name: logging.getLogger(name).level for name in _TALKERS}
    with warnings.catch_warnings():
        ignore_noise()
        try:
            for name in levels:
                logging.getLogger(name).setLevel(logging.WARNING)
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
