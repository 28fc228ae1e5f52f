"""Checkpoints that a run can safely go on from: written whole or not at all, verified before they are used."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.utilities import rank_zero_warn
from torch import nn

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import replacing
from ofmu_pl.training.run import precision_name
from ofmu_pl.training.shards import check_shards, names, read_index, shapes

LAST = "last"
"""The word that stands, in place of a path, for the newest sound checkpoint of the method's runs."""

SETTINGS = "settings"
"""Key of the run's ``settings`` in a checkpoint."""

NAMES = "names"
"""Key of the names of everything in the network and the optimizers (``shards.names``)."""

ENDED = "ended"
"""Key of the ``length`` that the run was asked for, present where the run has stopped by itself."""

_PRECISION = "trainer.precision"

_MAY_DIFFER = {
    "model.init_args.micro_batch_size",  # the same result
    "model.init_args.audit",
    "model.init_args.rollbacks",
    "model.init_args.network.init_args.activation_checkpointing",
    "data.init_args.data",  # hashes are compared instead
    "data.init_args.num_batches",  # follows from the method's own settings
    "data.init_args.pairs",  # the same before 0.2.0
}


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
    """Refuse to go on with other data.

    Args:
        now: Hashes of the data's splits and evaluation sets.
        then: Hashes that the checkpoint, or the results, were made with.

    Raises:
        UserError: A hash differs.
    """
    for split, value in then.items():
        if now.get(split) != value:
            raise UserError(
                f"The checkpoint was made with other data (split '{split}' has hash {now.get(split)}, "
                f"the checkpoint's {value}): give the run the same --data options, or start without --ckpt_path."
            )


def settings(resolved: dict[str, Any]) -> dict[str, str]:
    """The part of a resolved configuration that decides where the run goes: dotted keys and JSON values.

    Options that may change on the way (devices, logging, evaluation, the number of iterations) are not in it.
    """
    decides: dict[str, Any] = {k: resolved[k] for k in ("model", "data", "seed_everything") if k in resolved}
    if "trainer" in resolved:
        decides[_PRECISION] = precision_name(resolved["trainer"].get("precision"))
    return {k: _by_name(k, v) for k, v in _flat(decides) if k not in _MAY_DIFFER}


def _by_name(key: str, value: str) -> str:
    """The value, where a class of ours goes by its name alone, which stays when modules move."""
    ours = key.endswith("class_path") and value.startswith('"ofmu_pl.')
    return '"' + value.rpartition(".")[2] if ours else value


def length(resolved: dict[str, Any]) -> str:
    """The part of a resolved configuration that, beside ``settings``, decides when a run stops, as JSON."""
    names = ("max_steps", "max_epochs", "min_steps", "min_epochs", "max_time", "callbacks")
    trainer = resolved.get("trainer") or {}
    return _short(json.dumps({name: trainer.get(name) for name in names}, sort_keys=True, default=str))


def _short(asked: str) -> str:
    """A ``length`` whose classes of ours go by their names alone, as in ``settings``."""
    return re.sub(r'("class_path": ")ofmu_pl\.(?:\w+\.)*', r"\1", asked)


def progress(path: Path | None, resolved: dict[str, Any]) -> tuple[int, bool]:
    """The iterations done at a checkpoint (``None``: none), and whether a run that begins there has none left."""
    header = _header(path) if path else {}
    step, most = int(header.get("global_step", 0)), int(resolved["trainer"]["max_steps"])
    return step, 0 <= most <= step or _short(header.get(ENDED, "")) == length(resolved)


def _flat(x: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(x, dict) and x:
        for key, value in x.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, json.dumps(x, sort_keys=True, default=str)


def require_sound(path: Path) -> None:
    """Refuse a checkpoint, file or folder of shards, that is damaged, could run code, or would change the options.

    Raises:
        UserError: The checkpoint is unusable; the error gives the first reason found, and its remedy.
    """
    problem = _problem(path)
    if problem:
        raise UserError(
            f"The checkpoint '{path}' {problem}: give another one that a run of ofmu_pl wrote, or --ckpt_path {LAST} "
            "for the newest sound one."
        )


def resumed_from(words: str, method_folder: Path, now: dict[str, str] | None) -> Path | None:
    """The checkpoint that a run goes on from.

    Args:
        words: Path of a sound checkpoint, or ``last``.
        method_folder: Folder of the method's runs.
        now: The present ``settings``, which must be those of the checkpoint; ``None``: any settings will do.

    Returns:
        The checkpoint's path; ``None`` for ``last`` where there is none yet, so that one command line starts and
        restarts a run.

    Raises:
        UserError: The checkpoint is of a run with other settings.
    """
    if words == LAST:
        path = newest(method_folder)
        if path is None:
            return None
    else:
        path = Path(words)
    then = _header(path).get(SETTINGS)
    if now is None or then is None:
        return path
    then = {k: _by_name(k, v) for k, v in then.items() if k not in _MAY_DIFFER}  # older ones hold whole paths
    if _PRECISION in now:
        then.setdefault(_PRECISION, now[_PRECISION])  # older ones do not say
    if then == now:
        return path
    differing = [k for k in sorted({*then, *now}) if then.get(k) != now.get(k)]
    told = "; ".join(f"{k} was {then.get(k, 'not set')}, is {now.get(k, 'not set')}" for k in differing[:3])
    more = f" (and {len(differing) - 3} more)" if len(differing) > 3 else ""
    raise UserError(
        f"The checkpoint '{path}' is of a run with other settings ({told}{more}): give the run its old ones, or start "
        "without --ckpt_path."
    )


def newest(method_folder: Path) -> Path | None:
    """The newest sound checkpoint of a method's runs, ``None`` if there is none; broken ones are passed over."""
    found = [(p.lstat().st_mtime_ns, p) for p in method_folder.glob("version_*/checkpoints/*.ckpt")]
    for _, path in sorted(found, reverse=True):
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
        kinds = [f"{k} is {then.get(k, 'missing')} there, {now.get(k, 'missing')} here" for k in differing[:3]]
        told = "; ".join(kinds) + (f"; and {len(differing) - 3} more" if len(differing) > 3 else "")
        raise UserError(
            f"The checkpoint '{path}' is of another network ({told}): give the run the network that it was written "
            "with, or start without --ckpt_path."
        )


def moments_bytes(optimizer: Any) -> float:
    """Bytes of an optimizer's state: as many tensors per parameter as ours say that they keep (``moments``).

    Of others two for Adam and its kin, one with momentum, else none.
    """
    defaults = optimizer.defaults
    kin = 2 + bool(defaults.get("amsgrad")) if "betas" in defaults else bool(defaults.get("momentum"))
    tensors = getattr(optimizer, "moments", kin)
    sizes = (p.numel() * p.element_size() for group in optimizer.param_groups for p in group["params"])
    return float(tensors * sum(sizes))


def check_room(folder: Path, checkpoint_bytes: float, kept: int, export_bytes: float) -> None:
    """Refuse a run whose files will not fit the disk; they include the checkpoints that it has already.

    Args:
        folder: Folder of the files.
        checkpoint_bytes: Size of one checkpoint; 0: no more are written.
        kept: Number of checkpoints that stay; there is one more while it is written.
        export_bytes: Size of the exported model.

    Raises:
        UserError: The files take more than is free.
    """
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints = (folder / "checkpoints").rglob("*")
    there = sum(p.stat().st_size for p in checkpoints if p.is_file() and not p.is_symlink())
    # Whatever is there, the next checkpoint is whole before an older one is removed.
    wanted = max((kept + 1) * checkpoint_bytes - there, checkpoint_bytes) + export_bytes
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise UserError(
            f"The run will write about {wanted / 1e9:.3g} GB and '{folder}' has {free / 1e9:.3g} GB free: free some "
            "space, keep fewer checkpoints (--checkpoint.save_top_k 1), or give another disk with --logs."
        )


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
        return f"holds more than numbers and plain values ({_first_line(error)}), and code from a file is not run"
    except Exception:  # zipfile, pickle and torch answer damage with errors of many kinds
        return "is truncated or no checkpoint"
    return None


def _header(path: Path) -> dict[str, Any]:
    """A checkpoint's content, with its tensors left on the disk."""
    return dict(torch.load(_plain(path), map_location="cpu", weights_only=True, mmap=True))


def _plain(path: Path) -> Path:
    """The file that holds everything but shards."""
    return path / "meta.pt" if path.is_dir() else path


def _first_line(error: Exception) -> str:
    text = re.sub(r"\s+", " ", str(error))
    named = re.search(r"GLOBAL ([\w.]+)", text)
    return f"it names {named[1]}" if named else text[:80]
