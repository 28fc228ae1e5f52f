"""The command line in a process that can be killed."""

import contextlib
import os
import time
from pathlib import Path
from unittest import mock

import torch

from ofmu_pl.callbacks.text_evaluation import TextEvaluation
from ofmu_pl.cli import main

EVALUATION = "the final evaluation"


def run(words, output, hold=None):
    """All that it prints goes to a file.

    Args:
        words: Of the command line.
        output: The file.
        hold: Wait for ever, with the file ``<output>.held`` as the sign, just before a file or folder of this name is
            put in its place, or in the midst of ``EVALUATION``.
    """
    torch.set_num_threads(1)
    replace, score = os.replace, TextEvaluation.score

    def wait():
        Path(f"{output}.held").touch()
        time.sleep(3600)

    def held_replace(source, target):
        if Path(target).name == hold:
            wait()
        replace(source, target)

    def held_score(self, trainer, *args, **kwargs):
        scores = score(self, trainer, *args, **kwargs)
        if hold == EVALUATION and trainer.global_step == trainer.max_steps:
            wait()
        return scores

    with contextlib.ExitStack() as stack:
        file = stack.enter_context(Path(output).open("a"))
        stack.enter_context(contextlib.redirect_stdout(file))
        stack.enter_context(contextlib.redirect_stderr(file))
        stack.enter_context(mock.patch("os.replace", held_replace))
        stack.enter_context(mock.patch.object(TextEvaluation, "score", held_score))
        main(words)
