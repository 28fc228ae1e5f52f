"""The folders of a method's runs, ``version_0``, ``version_1``, ...: one per run, held by one process at a time."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import erase, locked, read_json, replacing
from ofmu_pl.support.records.reading import NewerError
from ofmu_pl.support.records.results import RESULTS, Results
from ofmu_pl.support.yaml_files import read_yaml
from ofmu_pl.training.checkpoints import LAST, progress, resumed_from
from ofmu_pl.training.settings import Resolved, length, settings

LOCK = ".lock"
ANOTHER = "or start another one without --ckpt_path"


@dataclass(frozen=True)
class Start:
    """The place where a command begins.

    Attributes:
        checkpoint: Checkpoint that it goes on from; ``None``: it starts from the beginning.
        folder: Folder of the run; ``None``: a new one.
        done: Whether that folder holds all that the command would make.
        step: Number of iterations done there.
        ended: Whether no iteration is left, so that only evaluation and export remain.
        new: Whether this command made the folder.
    """

    checkpoint: Path | None = None
    folder: Path | None = None
    done: bool = False
    step: int = 0
    ended: bool = False
    new: bool = False


def choose(method_folder: Path, command: str, words: str | None, resolved: Resolved) -> Start:
    """Choose where a command begins: a run goes on in its own folder until it has finished, and not after that.

    A command other than ``fit`` only measures, and takes a new folder for it. The ``words`` are the path of a sound
    checkpoint, ``last`` or ``None``.

    Raises:
        UserError: The checkpoint is of a run with other settings, or there is none to measure.
    """
    fits = command == "fit"
    checkpoint = resumed_from(words, method_folder, settings(resolved) if fits else None) if words else None
    if not fits:
        if words and checkpoint is None:
            raise UserError(
                f"There is no sound checkpoint in '{method_folder}' that could be measured: name another folder with "
                "--logs, --benchmark and --method, or leave out --ckpt_path to measure the model as it is."
            )
        return Start(checkpoint)
    step, ended = progress(checkpoint, resolved)
    start = Start(checkpoint, step=step, ended=ended)
    if words is None:
        return start
    if checkpoint is None:
        latest = (method_folder / "latest").resolve()  # a finished run may have kept no checkpoint
        done = _is_alike(latest, resolved) and _reached(latest, resolved) and _exported(latest, resolved)
        return replace(start, folder=method_folder / latest.name, done=True) if done else start
    homes = {folder.resolve(): folder for folder in versions(method_folder)}
    home = homes.get(checkpoint.resolve().parent.parent)
    if home is None or not (home / RESULTS).is_file():
        return replace(start, folder=home)
    return replace(start, folder=home, done=_exported(home, resolved)) if _reached(home, resolved) else start


@contextmanager
def begun(method_folder: Path, command: str, words: str | None, resolved: Resolved) -> Iterator[Start]:
    """A context with the place where a command begins (``choose``), in which this process holds the folder.

    Raises:
        UserError: See ``choose``; or the run to go on with is still at work.
    """
    with ExitStack() as held:
        with locked(method_folder / LOCK, wait=True):  # so that of two starts one sees what the other has chosen
            if command == "fit" and words == LAST:
                for folder in versions(method_folder):
                    require_idle(folder, ANOTHER)
            start = choose(method_folder, command, words, resolved)
            if not start.done:
                start = _placed(start, method_folder, words, resolved)
                assert start.folder is not None
                require_idle(start.folder, ANOTHER)
                file = held.enter_context(locked(start.folder / LOCK))
                file.truncate(0)  # it was opened for appending, so what is written begins there
                json.dump({"command": command, "process": os.getpid(), "host": socket.gethostname()}, file)
                file.flush()
                for link in start.folder.iterdir():  # files are written anew, and not to where a link leads
                    if link.is_symlink() and not link.is_dir():
                        link.unlink()
                # Of a process that was killed; whatever the clock said then, the record writes its points anew.
                for rest in [*start.folder.rglob(".*.partial"), *start.folder.glob("events.out.tfevents.*")]:
                    erase(rest)
        yield start


def versions(method_folder: Path) -> list[Path]:
    """The folders of a method's runs, the newest first."""
    found = [p for p in method_folder.glob("version_*") if p.is_dir() and number(p) is not None]
    return sorted(found, key=lambda p: number(p) or 0, reverse=True)


def number(folder: Path) -> int | None:
    """N of ``version_N``."""
    digits = folder.name.removeprefix("version_")
    return int(digits) if digits.isdecimal() else None


def discard(folder: Path) -> None:
    """Remove a run's folder if the run left nothing in it."""
    if _is_vacant(folder):
        shutil.rmtree(folder)


def point_latest(folder: Path) -> None:
    """Point ``latest`` at a run's folder, which must hold results."""
    if not (folder / RESULTS).is_file():
        return
    with locked(folder.parent / LOCK, wait=True):
        for rest in folder.parent.glob(".latest.*.partial"):  # of a process that was killed
            rest.unlink()
        with replacing(folder.parent / "latest") as temporary:
            temporary.symlink_to(folder.name)


def _placed(start: Start, method_folder: Path, words: str | None, resolved: Resolved) -> Start:
    """The start with a folder: the run's own, that of such a run killed before it left a checkpoint, or a new one."""
    if start.folder is not None:
        return start
    known = versions(method_folder)
    if words == LAST:
        held = [p for p in known if (p / LOCK).exists() or not any(p.iterdir())]  # or killed before it held its own
        ended = [p for p in held if not (p / RESULTS).is_file() and _holder(p) is None]
        free = [p for p in ended if _is_vacant(p) or _is_alike(p, resolved)]
        if free:
            return replace(start, folder=free[0])
    folder = method_folder / f"version_{1 + max((number(p) or 0 for p in known), default=-1)}"
    folder.mkdir()
    return replace(start, folder=folder, new=True)


def _reached(folder: Path, resolved: Resolved) -> bool:
    """Whether a run has finished with as many iterations as are asked for now, or by the same rule for stopping.

    Raises:
        NewerError: A newer version of ofmu_pl wrote its results.
    """
    try:
        steps = int(Results.read(folder / RESULTS).provenance["steps"])
    except NewerError:
        raise
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return 0 <= resolved["trainer"]["max_steps"] <= steps or length(_config(folder)) == length(resolved)


def _is_alike(folder: Path, resolved: Resolved) -> bool:
    """Whether a run had the same settings (its file leaves out those that follow from others)."""
    then = settings(_config(folder))
    return bool(then) and then.items() <= settings(resolved).items()


def _exported(folder: Path, resolved: Resolved) -> bool:
    """Whether the exported model is there, if one is asked for."""
    return resolved["export"]["folder"] is None or (folder / resolved["export"]["folder"]).is_dir()


def _config(folder: Path) -> Resolved:
    """The configuration that a run has saved; empty if it cannot be read."""
    try:
        return dict(read_yaml(folder / "config.yaml"))
    except (OSError, ValueError, TypeError):
        return {}


def warn_of_other_scores(folder: Path, resolved: Resolved) -> None:
    """Say that a finished run was measured otherwise than is asked for now."""
    then, now = (json.dumps(x.get("evaluation"), sort_keys=True, default=str) for x in (_config(folder), resolved))
    if then != now:
        rank_zero_warn(f"'{folder}' was evaluated with other settings, and stays so: `validate` measures it now.")


def _is_vacant(folder: Path) -> bool:
    """Whether a run left nothing but its configuration and a file of scalars."""
    idle = ("config.yaml", "hparams.yaml", LOCK, "events.out.tfevents.*", "metrics.csv", ".*.partial")
    files = filter(Path.is_file, folder.rglob("*"))
    return all(any(map(path.match, idle)) for path in files)


def require_idle(folder: Path, remedy: str) -> None:
    """Refuse to touch a folder where a run is still at work; ``remedy`` is what to do besides waiting.

    Raises:
        UserError: A process holds the folder's lock, and it does not only measure.
    """
    holder = _holder(folder)
    if holder is not None and holder.get("command", "fit") == "fit":
        who = f" (process {holder['process']} on {holder['host']})" if "process" in holder else ""
        raise UserError(f"A run is at work in '{folder}'{who}: wait for its end, {remedy}.")


def _holder(folder: Path) -> dict[str, Any] | None:
    """What the process that holds a folder says of itself; ``None`` if no process does."""
    if not (folder / LOCK).exists():
        return None
    try:
        with locked(folder / LOCK):
            return None
    except BlockingIOError:
        try:
            return dict(read_json(folder / LOCK))
        except (OSError, ValueError, TypeError):
            return {}
