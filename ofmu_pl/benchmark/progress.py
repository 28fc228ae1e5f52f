"""How far a benchmark is, and how long it will take, on a terminal or line by line in a file."""

import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from ofmu_pl.support.terminal import Prudent, span

_BAR = re.compile(r"([^\r\n|]*): +\d+%\|[^|]*\| (\d+)/(\d+) \[[^,\]\r\n]*, [^,\]\r\n]*(?:, ([^\]\r\n]*))?\]")
"""What tqdm draws: of what how many of how many, and behind times and rate the values that a run shows."""
IN_FILE = 60.0  # seconds between two lines on a run, where there is no terminal
_BESIDE = 66  # columns of what stands before a bar's values
_TAIL = 2000  # bytes at a log's end that hold its newest bar


def newest_bar(log: Path) -> tuple[int, int, str] | None:
    """How many of how many steps the newest bar in a log shows, and its values or what it is of; ``None``: no bar."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        for found in list(_BAR.finditer(file.read().decode(errors="replace")))[-1:]:
            return int(found[2]), int(found[3]), found[4] or found[1].strip()
    return None


class Live:
    """Bars over all runs and of each that is at work, a context manager, with the time left for so many workers.

    Attributes:
        folder: That of the benchmark, below which its runs are.
        every: Seconds from one look at the runs at work to the next.
    """

    def __init__(self, workers: int, folder: Path) -> None:
        self.workers, self.folder = workers, folder
        self.seconds: list[float] = []
        self.total = self.finished = 0
        self._console = Prudent(file=sys.stderr, highlight=False, soft_wrap=True)
        values = Column(no_wrap=True, max_width=max(8, self._console.width - _BESIDE))
        self.bar = Progress(
            "{task.description}",
            BarColumn(12),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", table_column=values),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self.bar.add_task("all runs", total=0, left="")
        self._at_work: dict[Path, TaskID] = {}
        self._written: dict[Path, tuple[int, int, str] | None] = {}  # the newest bar of each that a file was told
        self.every = 1.0 if self._console.is_terminal else IN_FILE

    def expect(self, runs: int) -> None:
        """So many more runs (fewer, if negative)."""
        self.total += runs
        self.bar.update(self._task, total=self.total)

    def done(self, seconds: float | None) -> None:
        """One of them is over; ``None``: no measure of how long a run takes (it failed)."""
        self.finished += 1
        self.seconds += [] if seconds is None else [seconds]

    def show(self, place: Path, sentence: str | None = None) -> None:
        """Draw, and say what is over, and why it failed, if it did."""
        what = str(place.relative_to(self.folder))
        self.bar.update(self._task, total=self.total, completed=self.finished, left=self.time_left)
        if sentence is not None:
            self._console.print(f"Failed: {what}: {sentence}", markup=False)
        else:
            self._console.print(f"[{self.finished}/{self.total}] {what}, {self.time_left}", markup=False)

    def watch(self, logs: Iterable[Path]) -> None:
        """Draw the runs at work, by the newest bars in their logs; those that are over go. A file gets a line a run."""
        for log in self._at_work.keys() - set(logs):
            self.bar.remove_task(self._at_work.pop(log))
        for log in logs:
            name, bar = str(log.parent.relative_to(self.folder)), newest_bar(log)
            if log not in self._at_work:
                self._at_work[log] = self.bar.add_task(name, total=None, left="")
            done, total, values = bar or (0, None, "")
            self.bar.update(self._at_work[log], completed=done, total=total, left=values)
            if not self._console.is_terminal and self._written.get(log, ()) != bar:
                self._written[log] = bar
                self._console.print(f"{name}: {f'{done}/{total} {values}' if bar else 'begins'}", markup=False)

    @property
    def time_left(self) -> str:
        """Time left, by the mean time of runs so far."""
        if not self.seconds:
            return "time left unknown"
        each = sum(self.seconds) / len(self.seconds)
        return f"{span((self.total - self.finished) * each / self.workers)} left"
