"""Runs side by side, each in a process of its own: what one does to its process, no other sees."""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.benchmark.progress import Live
from ofmu_pl.support.errors import DivergedError, UserError, check_range
from ofmu_pl.support.files import texts_in
from ofmu_pl.support.kept import read_record
from ofmu_pl.support.records.results import BEGUN, FAILED, FINISHED, LOG, JobRecord
from ofmu_pl.support.trust import restrict_imports
from ofmu_pl.support.yaml_files import read_yaml


@dataclass(frozen=True)
class Job:
    """A job that is done once.

    Attributes:
        call: Does it, in a process of its own; can be pickled.
        result: A file, below its folder or by its whole path, without which it has not finished; ``None``: none.
    """

    place: Path
    key: str
    call: Callable[[], None]
    words: list[str] = field(default_factory=list)
    result: str | None = None

    @property
    def record(self) -> JobRecord | None:
        """What the job left if it has finished; ``None`` too for another key's file or a missing result."""
        return self._mine(FINISHED) if self.made else None

    @property
    def made(self) -> bool:
        """Whether the job's result is there."""
        return self.result is None or (self.place / self.result).is_file()

    @property
    def rewritten(self) -> list[str]:
        """Files and models that its run named, also in configurations, and that were written after it had finished."""
        if self.record is None:
            return []
        ended = (self.place / FINISHED).stat().st_mtime
        named = [word.rpartition("=")[2] for word in self.words if not word.startswith("--config=")]
        parsed = self.place / "latest" / "config.yaml"  # which has what the configurations named
        with suppress(OSError, UserError):
            named += texts_in(read_yaml(parsed))
        return [word for word in dict.fromkeys(named) if _last_written(word) > ended]

    @property
    def failure(self) -> JobRecord | None:
        """What the job left if it has failed."""
        return self._mine(FAILED)

    def _mine(self, name: str) -> JobRecord | None:
        found = left(self.place / name)
        return found if found is not None and found.key == self.key else None


def left(path: Path) -> JobRecord | None:
    """The record that a job left; ``None``: none that can be read, since that of one job must not end the others."""
    try:
        return read_record(JobRecord, path)
    except OSError:
        return None


def _last_written(word: str) -> float:
    """When a file, or the newest weights of a model's folder, were written; 0: it is neither."""
    files = [word] if os.path.isfile(word) else Path(word).glob("*.safetensors") if os.path.isdir(word) else []
    return max(map(os.path.getmtime, files), default=0.0)


Ended = Callable[[Job, str | None, bool], list[Job] | None]
"""Called with a job, the sentence of its failure and whether it ran just now; gives the jobs that may follow it."""


class Pool:
    """Up to ``workers`` processes at a time, each with one CPU thread, and a GPU of its own where there are several.

    Processes are forked from a server, which the command line has told what to import once, so that starting one takes
    no time, memory peaks are a run's own, and a run that is killed takes no other with it. They end when this one does.
    """

    def __init__(self, workers: int, live: Live) -> None:
        check_range(1, whole=True, workers=workers)
        self.workers, self.live = workers, live
        self._context = multiprocessing.get_context("forkserver")

    def run(self, jobs: list[Job], ended: Ended) -> None:
        """Do all jobs that have not finished before, nor failed for good.

        ``ended`` is called after each; what follows it comes before what waits.
        """
        waiting = self._left(jobs, ended)
        free = list(range(self.workers))[::-1]
        running: dict[int, tuple[ForkServerProcess, Job, int]] = {}
        try:
            while waiting or running:
                while waiting and free:
                    job, slot = waiting.pop(0), free.pop()
                    process = self._context.Process(target=_work, args=(job, _device(slot)))
                    try:
                        process.start()
                    except (EOFError, ConnectionError) as error:
                        raise UserError(
                            "The process that starts runs was ended from outside, perhaps for want of memory: start "
                            "the same line again, with fewer --workers."
                        ) from error
                    running[process.sentinel] = (process, job, slot)
                self.live.watch([job.place / LOG for _, job, _ in running.values()])
                ready = connection.wait(list(running), timeout=self.live.every)
                for sentinel in ready:
                    process, job, slot = running.pop(sentinel)  # type: ignore[arg-type]
                    process.join()
                    free.append(slot)
                    waiting[:0] = self._left(self._end(job, ended, process.exitcode), ended)
        finally:
            self.live.watch([])
            for process, _, _ in running.values():
                process.kill()
                process.join()

    def _left(self, jobs: list[Job], ended: Ended) -> list[Job]:
        """The jobs, and those that follow them, that have not finished before, nor failed for good."""
        waiting = []
        for job in jobs:
            failure = job.failure
            if job.record is None and not (failure and failure.final):
                waiting.append(job)
                continue
            for path in job.rewritten:
                rank_zero_warn(
                    f"'{path}' was written after '{job.place}' had finished with it, which is not run again: if its "
                    "contents have changed, give what is run another name."
                )
            waiting += self._left(self._end(job, ended), ended)
        return waiting

    def _end(self, job: Job, ended: Ended, exit_code: int | None = None) -> list[Job]:
        """Tell what a job left; with the exit code of its process, which ran just now. Returns what follows it."""
        record, failure = job.record, job.failure
        sentence = None
        if record is None:
            killed = f"its process ended with exit code {exit_code} (negative: the signal's number)"
            sentence = (failure and failure.error) or killed
        self.live.done(record.seconds if record else None)
        return ended(job, sentence, exit_code is not None) or []


def _device(slot: int) -> str | None:
    """The GPU of a worker, where there are several; ``None``: whatever there is."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]
    return names[slot % len(names)] if len(names) > 1 else None


def _work(job: Job, device: str | None) -> None:
    """One job in this process, its output in ``log.txt``; leaves the record of its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the benchmark's business
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    torch.set_num_threads(1)
    restrict_imports()
    job.place.mkdir(parents=True, exist_ok=True)
    for name in (FINISHED, FAILED, LOG):  # of other options, or of a failure that may be mended by now
        (job.place / name).unlink(missing_ok=True)
    JobRecord(job.key, job.words).write(job.place / BEGUN)
    started = time.perf_counter()
    problem: BaseException | None = None
    with (job.place / LOG).open("w") as log:
        for target in (1, 2):  # what libraries print, too
            os.dup2(log.fileno(), target)
    try:
        job.call()
        if not job.made:
            raise UserError(f"It ended without an error and has left no {job.result}: start the benchmark again.")
    except SystemExit as error:
        problem = error if error.code else None
    except Exception as error:
        problem = error
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    seconds = time.perf_counter() - started
    if problem is None:
        JobRecord(job.key, job.words, seconds).write(job.place / FINISHED)
        (job.place / BEGUN).unlink()
        return
    cause = problem.__context__ if isinstance(problem, SystemExit) else problem
    # A divergence follows from the key, and would come again; other failures may be the machine's.
    final = isinstance(cause, DivergedError)
    sentence = _sentence(job.place / LOG, cause)
    JobRecord(job.key, job.words, seconds, sentence, final).write(job.place / FAILED)


def _sentence(log: Path, cause: BaseException | None) -> str:
    if isinstance(cause, UserError | DivergedError):
        return str(cause)
    said = re.findall(r"ofmu_pl: (?!warning: )(?:error: )?(.+)", log.read_text(errors="replace"))
    if said:
        return str(said[-1])
    text = " ".join(f"{type(cause).__name__}: {cause}".split())
    return text if len(text) < 300 else f"{text[:300]}... (whole in {log})"


def _end_with_parent() -> None:
    """A benchmark that was killed leaves no run behind, which the next one would meet in its folder."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
