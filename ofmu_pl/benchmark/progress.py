"""How far a benchmark is, and how long it will take, on a terminal or line by line in a file."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Live(contextlib.AbstractContextManager["Live"]):
    """A bar over all runs, with the time left when so many workers run side by side."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.left: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = {}
        self.total = self.finished = 0
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "{task.fields[left]}")
        self._progress = Progress(
            *(TextColumn(c) if isinstance(c, str) else c for c in columns),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("", total=0, left="")

    def __enter__(self) -> Live:
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def expect(self, group: str, runs: int = 1) -> None:
        """So many more runs that take about as long as each other (fewer, if negative)."""
        self.left[group] += runs
        self.total += runs

    def done(self, group: str, seconds: float | None) -> None:
        """One of them is over; ``None``: no measure of how long such a run takes (it failed)."""
        self.left[group] -= 1
        self.finished += 1
        if seconds is not None:
            self.seconds.setdefault(group, []).append(seconds)

    def show(self, what: str, sentence: str | None = None) -> None:
        """Draw, and say what is over, and why it failed, if it did."""
        self._progress.update(
            self._task, description=what, total=self.total, completed=self.finished, left=self.time_left
        )
        if sentence is not None:
            self._console.print(f"Failed: {what}: {sentence}", markup=False)
        elif not self._console.is_terminal:
            self._console.print(f"[{self.finished}/{self.total}] {what}, {self.time_left}", markup=False)

    @property
    def time_left(self) -> str:
        """Time left, by the mean time of like runs, or of all runs where none so far is alike."""
        known = [s for group in self.seconds.values() for s in group]
        if not known:
            return "time left unknown"
        overall = sum(known) / len(known)
        means = {group: sum(s) / len(s) for group, s in self.seconds.items()}
        seconds = sum(n * means.get(group, overall) for group, n in self.left.items()) / self.workers
        return f"{seconds / 60:.0f} min left" if seconds < 5400 else f"{seconds / 3600:.1f} h left"
