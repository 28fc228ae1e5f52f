"""A rank that dies: the others name it and end, where they would wait for it in vain or print a traceback each."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch.distributed import DistError

from ofmu_pl.cli.said import say
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.interrupts import ADVICE, SIGNALS

POLL = 0.1
"""Seconds between two looks at the other ranks; Lightning looks every 5, and then kills all of them."""

GRACE = 2.0
"""Seconds that a rank gets to end in its own words once another is gone."""

_LOST = re.compile(r"gloo|NCCL|Connection (closed|reset) by peer|Broken pipe|Socket Timeout", re.IGNORECASE)
_TOLD = {128 + s for s in SIGNALS}
"""Exit codes of a rank that was told to end and did so in an orderly way."""


@contextmanager
def watched(trainer: pl.Trainer, command: str) -> Iterator[None]:
    """A context in which the death of a rank ends the others on its machine within seconds, with one sentence.

    Rank 0 watches the ranks that it started, and these watch rank 0. Ranks that something else started (torchrun, a
    scheduler) know only that a connection is lost, and say that.

    Args:
        trainer: Whose ranks they are.
        command: The first word of the command line, for how to go on.

    Raises:
        UserError: Another rank died.
        SystemExit: Another rank died, and the sentence that says so is out already.
    """
    watch = _Watch(trainer, ADVICE.get(command, ""))
    try:
        yield
    except (RuntimeError, DistError) as error:
        if not _LOST.search(str(error)):
            raise
        end = time.monotonic() + GRACE
        while not watch.sentence and time.monotonic() < end:
            time.sleep(POLL)
        if watch.said:
            raise SystemExit(1) from error
        raise UserError(watch.sentence or f"The connection to another rank is lost{watch.advice}.") from error
    finally:
        watch.over.set()


class _Watch:
    """Looks at the ranks on this machine until the work is over or one of them is gone."""

    def __init__(self, trainer: pl.Trainer, advice: str) -> None:
        self.trainer, self.advice = trainer, advice
        self.parent = os.getppid()
        self.over = threading.Event()
        self.sentence = ""
        self.said = False
        threading.Thread(target=self._look, daemon=True, name="rank-watch").start()

    def _look(self) -> None:
        """Say which rank is gone, and end this process if it does not end by itself."""
        while not self.over.wait(POLL):
            sentence, killed = self._gone()
            if not sentence:
                continue
            if killed:  # whoever was killed had no time to say so
                say(sentence)
            self.said, self.sentence = killed, sentence  # last, so that the main thread does not say it again
            if self.over.wait(GRACE):
                return
            if not killed:
                say(sentence)
            for process in self._children():
                with suppress(ProcessLookupError):
                    process.kill()
            os._exit(1)  # the main thread may wait inside a collective, which no exception reaches

    def _gone(self) -> tuple[str, bool]:
        """The sentence for a rank that is gone, and whether a signal killed it."""
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        for number, process in enumerate(self._children(), start=rank + 1):
            code = process.poll()
            if code and code not in _TOLD:
                return f"Rank {number} of {ranks} {_how(code)}{self.advice}.", code < 0
        if self.trainer.local_rank and os.getppid() != self.parent:
            alone = isinstance(self.trainer.strategy.cluster_environment, LightningEnvironment)  # type: ignore[attr-defined]
            who = "rank 0, which started it," if alone else "what started it"
            return f"Rank {rank} of {ranks} ends, since {who} is gone{self.advice}.", True
        return "", False

    def _children(self) -> list[Any]:
        """The processes that this one started as ranks."""
        return list(getattr(self.trainer.strategy.launcher, "procs", []))


def _how(code: int) -> str:
    """How a process ended, by its exit code."""
    if code > 0:
        return f"ended with exit code {code}, for the reason that it gave"
    memory = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{memory}"
