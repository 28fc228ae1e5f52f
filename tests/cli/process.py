"""The command line in a process that can be killed."""

import contextlib
from pathlib import Path

import torch

from ofmu_pl.cli import main


def run(words, output):
    """All that it prints goes to a file."""
    torch.set_num_threads(1)
    with Path(output).open("a") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        main(words)
