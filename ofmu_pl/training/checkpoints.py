"""Checkpoints that a run can safely go on from: written whole or not at all, verified before they are used."""

import pickle
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.utilities import rank_zero_warn
from torch import nn

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import regular, replacing
from ofmu_pl.training.settings import Resolved, differences, length, short
from ofmu_pl.training.shards import check_shards, names, read_index, shapes

LAST = "last"  # the word that stands, in place of a path, for the newest sound checkpoint of the method's runs
SETTINGS = "settings"  # key of the run's `settings` in a checkpoint
NAMES = "names"  # key of the names of everything in the network and the optimizers (`shards.names`)
ENDED = "ended"  # key of the `length` that the run was asked for, present where the run has stopped by itself
WHY = "why"  # key beside it of the reason, if there is one to be said
_OURS = {"callbacks", "data_hashes", "global_step", "loops", "lr_schedulers", "pytorch-lightning_version"}
_WEIGHTS = {"optimizer_states", "state_dict"}  # of a folder of shards these are the shards


class WholeFiles(TorchCheckpointIO):
    """Writes a checkpoint beside its place, waits for the disk, then renames it; Lightning's own holds it twice."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write a file whose records carry CRC-32 sums (torch's zip format)."""
        with replacing(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


def names_in(checkpoint: dict[str, Any]) -> list[str]:
    """The names of all that Lightning writes into shards."""
    optimizers = {f"optimizer_{i}": x for i, x in enumerate(checkpoint.get("optimizer_states", []))}
    return names({"state_dict": checkpoint["state_dict"], **optimizers})


def require_same_data(now: dict[str, str], then: dict[str, str]) -> None:
    """Refuse to go on with other data, by the hashes of its splits and evaluation sets ``now`` and ``then``.

    Raises:
        UserError: A hash differs.
    """
    for split, value in then.items():
        if now.get(split) != value:
            raise UserError(
                f"The checkpoint was made with other data (split '{split}' has hash {now.get(split)}, "
                f"the checkpoint's {value}): give the run the same --data options, or start without --ckpt_path."
            )


def progress(path: Path | None, resolved: Resolved) -> tuple[int, bool]:
    """The iterations done at a checkpoint (``None``: none), and whether a run that begins there has none left."""
    header = _header(path) if path else {}
    step, most = int(header.get("global_step", 0)), int(resolved["trainer"]["max_steps"])
    return step, 0 <= most <= step or short(header.get(ENDED, "")) == length(resolved)


def require_sound(path: Path) -> None:
    """Refuse a checkpoint, file or folder of shards, that is damaged, could run code, or would change the options.

    Raises:
        UserError: The checkpoint is unusable, for the reason that the error gives.
    """
    problem = _problem(regular(path))
    if problem:
        raise UserError(f"The checkpoint '{path}' {problem}: give a sound one (--ckpt_path {LAST}: the newest).")


def resumed_from(words: str, method_folder: Path, now: dict[str, str] | None) -> Path | None:
    """The checkpoint that a run goes on from; ``None``: it was ``last``, and there is none yet.

    Args:
        words: Path of a sound checkpoint, or ``last``.
        method_folder: Folder of the method's runs.
        now: The present ``settings``, which must be those of the checkpoint; ``None``: any settings will do.

    Raises:
        UserError: The checkpoint is of a run with other settings.
    """
    path = newest(method_folder) if words == LAST else Path(words)
    then = None if path is None else _header(path).get(SETTINGS)
    if now is not None and then is not None:
        differing = differences(then, now)
        if differing:
            raise UserError(
                f"The checkpoint '{path}' is of a run with other settings ({_some(differing)}): give the run its old "
                "ones, or start without --ckpt_path."
            )
    return path


def newest(method_folder: Path) -> Path | None:
    """The newest sound checkpoint of a method's runs, ``None`` if there is none; broken ones are passed over."""
    found = method_folder.glob("version_*/checkpoints/*.ckpt")
    for path in sorted(found, key=lambda p: (p.lstat().st_mtime_ns, p), reverse=True):
        problem = _problem(path)
        if problem is None:
            return path
        rank_zero_warn(f"The checkpoint '{path}' {problem} and is passed over.")
    return None


def most_advanced(paths: Iterable[Path], below: float) -> Path | None:
    """The sound checkpoint with the most iterations, fewer than ``below``; ``None`` if there is none."""
    steps = {path: int(_header(path)["global_step"]) for path in paths if _problem(path) is None}
    return max((path for path, step in steps.items() if step < below), key=lambda path: steps[path], default=None)


def require_fit(path: Path, network: nn.Module) -> None:
    """Refuse a checkpoint of another network.

    Raises:
        UserError: A tensor is missing in one of the two, or has another shape.
    """
    if path.is_dir():
        then = shapes(path, "state_dict.network")
    else:
        weights = _header(path)["state_dict"]
        then = {k.removeprefix("network."): list(x.shape) for k, x in weights.items() if k.startswith("network.")}
    now = {k: list(x.shape) for k, x in network.state_dict().items()}
    differing = [k for k in sorted({*then, *now}) if then.get(k) != now.get(k)]
    if differing:
        kinds = [f"{k} is {then.get(k, 'missing')} there, {now.get(k, 'missing')} here" for k in differing]
        raise UserError(
            f"The checkpoint '{path}' is of another network ({_some(kinds)}): give the run the network that it was "
            "written with, or start without --ckpt_path."
        )


def _some(differing: list[str]) -> str:
    """The first three of what differs."""
    return "; ".join(differing[:3]) + (f"; and {len(differing) - 3} more" if len(differing) > 3 else "")


def _problem(path: Path) -> str | None:
    """The reason why a checkpoint is unusable, as the end of a sentence; ``None`` if it is sound."""
    if not path.exists():
        return "does not exist"
    try:
        # First: what could run code is said before any damage.
        index = read_index(path) if path.is_dir() else None
        with zipfile.ZipFile(_plain(path)) as archive:
            damaged = archive.testzip()
        if damaged:
            return f"is damaged (its record '{damaged}' does not match its checksum)"
        header = _header(path)
        if index is not None:
            check_shards(path, index, header.get(NAMES))
        if "hyper_parameters" in header:
            return "brings options of its own (hyper_parameters), which would take the place of yours"
        lacking = sorted((_OURS | (set() if path.is_dir() else _WEIGHTS)) - header.keys())
        if lacking:
            return f"is no checkpoint of a run (it lacks '{lacking[0]}')"
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f"it names {named[1]}" if named else " ".join(str(error).split())[:80]
        return f"holds more than numbers and plain values ({what}), and code from a file is not run"
    except Exception:  # zipfile, pickle and torch answer damage with errors of many kinds
        return "is truncated or no checkpoint"
    return None


def _header(path: Path) -> dict[str, Any]:
    """A checkpoint's content, with its tensors left on the disk."""
    return dict(torch.load(_plain(path), map_location="cpu", weights_only=True, mmap=True))


def _plain(path: Path) -> Path:
    """The file that holds everything but shards."""
    return path / "meta.pt" if path.is_dir() else path
