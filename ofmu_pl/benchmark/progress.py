"""How far a benchmark is, and how long it will take, on a terminal or line by line in a file."""

import sys

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from ofmu_pl.support.terminal import Prudent, span


class Live:
    """A bar over all runs, a context manager, with the time left when so many workers run side by side."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.seconds: list[float] = []
        self.total = self.finished = 0
        self._console = Prudent(file=sys.stderr, highlight=False, soft_wrap=True)
        self.bar = Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            "{task.fields[left]}",
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self.bar.add_task("", total=0, left="")

    def expect(self, runs: int) -> None:
        """So many more runs (fewer, if negative)."""
        self.total += runs

    def done(self, seconds: float | None) -> None:
        """One of them is over; ``None``: no measure of how long a run takes (it failed)."""
        self.finished += 1
        self.seconds += [] if seconds is None else [seconds]

    def show(self, what: str, sentence: str | None = None) -> None:
        """Draw, and say what is over, and why it failed, if it did."""
        self.bar.update(self._task, description=what, total=self.total, completed=self.finished, left=self.time_left)
        if sentence is not None:
            self._console.print(f"Failed: {what}: {sentence}", markup=False)
        elif not self._console.is_terminal:
            self._console.print(f"[{self.finished}/{self.total}] {what}, {self.time_left}", markup=False)

    @property
    def time_left(self) -> str:
        """Time left, by the mean time of runs so far."""
        if not self.seconds:
            return "time left unknown"
        each = sum(self.seconds) / len(self.seconds)
        return f"{span((self.total - self.finished) * each / self.workers)} left"
