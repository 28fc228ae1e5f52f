"""Checkpoints that a run can be trusted to go on from: written whole or not at all, verified before they are used."""

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
from ofmu_pl.training.shards import check_shards, names, read_index, shapes

LAST = "last"
"""Instead of a path: the newest sound checkpoint of the method's runs."""

SETTINGS = "settings"
"""Key of a checkpoint under which the run's ``settings`` stand."""

NAMES = "names"
"""Key under which stands what the optimizers and the network are made of (``shards.names``)."""

ENDED = "ended"
"""Key under which stands, if the run stopped by itself there, the ``length`` that it was asked for."""

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
    """The names of what Lightning writes into shards."""
    optimizers = {f"optimizer_{i}": x for i, x in enumerate(checkpoint.get("optimizer_states", []))}
    return names({"state_dict": checkpoint["state_dict"], **optimizers})


def require_same_data(now: dict[str, str], then: dict[str, str]) -> None:
    """Refuse to go on with other data.

    Args:
        now: Hashes of the data's splits and sets.
        then: Those of the run that a checkpoint or results are of.

    Raises:
        UserError: One differs.
    """
    for split, value in then.items():
        if now.get(split) != value:
            raise UserError(
                f"The checkpoint was made with other data (split '{split}' has hash {now.get(split)}, "
                f"the checkpoint's {value}): give the run the same --data options, or start without --ckpt_path."
            )


def settings(resolved: dict[str, Any]) -> dict[str, str]:
    """What of a resolved configuration decides where the run goes: dotted keys and JSON values.

    What may change on the way (devices, logging, evaluation, the number of iterations) is not in it.
    """
    decides = {k: resolved[k] for k in ("model", "data", "seed_everything") if k in resolved}
    return {k: _by_name(k, v) for k, v in _flat(decides) if k not in _MAY_DIFFER}


def _by_name(key: str, value: str) -> str:
    """A class of ours goes by its name alone, which stays where modules move."""
    ours = key.endswith("class_path") and value.startswith('"ofmu_pl.')
    return '"' + value.rpartition(".")[2] if ours else value


def length(resolved: dict[str, Any]) -> str:
    """What of a resolved configuration decides when a run stops, as JSON (with ``settings``, which may stop it too)."""
    names = ("max_steps", "max_epochs", "min_steps", "min_epochs", "max_time", "callbacks")
    trainer = resolved.get("trainer") or {}
    return json.dumps({name: trainer.get(name) for name in names}, sort_keys=True, default=str)


def progress(path: Path | None, resolved: dict[str, Any]) -> tuple[int, bool]:
    """The iterations done at a checkpoint (``None``: none), and whether none is left to the run that begins there."""
    header = _header(path) if path else {}
    step, most = int(header.get("global_step", 0)), int(resolved["trainer"]["max_steps"])
    return step, 0 <= most <= step or header.get(ENDED) == length(resolved)


def _flat(x: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(x, dict) and x:
        for key, value in x.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, json.dumps(x, sort_keys=True, default=str)


def require_sound(path: Path) -> None:
    """Refuse a checkpoint, file or folder of shards, that is damaged, could run code, or would change the options.

    Raises:
        UserError: The first thing found, with its remedy.
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
        words: One that is sound, or ``last``.
        method_folder: Of the method's runs.
        now: The present ``settings``, which must be those of the checkpoint; ``None``: any will do.

    Returns:
        Its path; ``None`` for ``last`` where there is none yet, so that one command line starts and restarts a run.

    Raises:
        UserError: It is of a run with other settings.
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
    """Of checkpoints the sound one with the most iterations, fewer than ``below``; ``None`` if there is none."""
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
    """What an optimizer's state will take, bytes: two tensors a parameter of Adam's kin, one of momentum, else none."""
    defaults = optimizer.defaults
    tensors = 2 + bool(defaults.get("amsgrad")) if "betas" in defaults else bool(defaults.get("momentum"))
    sizes = (p.numel() * p.element_size() for group in optimizer.param_groups for p in group["params"])
    return float(tensors * sum(sizes))


def check_room(folder: Path, checkpoint_bytes: float, kept: int, export_bytes: float) -> None:
    """Refuse a run whose files will not fit the disk; checkpoints that it has already are part of them.

    Args:
        folder: Where they go.
        checkpoint_bytes: Of one checkpoint.
        kept: How many stay; one more is there while it is written.
        export_bytes: Of the exported model.

    Raises:
        UserError: They take more than is free.
    """
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints = (folder / "checkpoints").rglob("*")
    there = sum(p.stat().st_size for p in checkpoints if p.is_file() and not p.is_symlink())
    wanted = max((kept + 1) * checkpoint_bytes - there, 0) + export_bytes
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise UserError(
            f"The run will write about {wanted / 1e9:.3g} GB and '{folder}' has {free / 1e9:.3g} GB free: free some "
            "space, keep fewer checkpoints (--checkpoint.save_top_k 1), or give another disk with --logs."
        )


def _problem(path: Path) -> str | None:
    """What makes a checkpoint unusable, as the end of a sentence."""
    if not path.exists():
        return "does not exist"
    try:
        if path.is_dir():
            read_index(path)  # first: what could run code is said before any damage
        with zipfile.ZipFile(_plain(path)) as archive:
            damaged = archive.testzip()
        if damaged:
            return f"is damaged (its record '{damaged}' does not match its checksum)"
        header = _header(path)
        if path.is_dir():
            check_shards(path, header.get(NAMES))
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
    """A checkpoint's content, its tensors still on the disk."""
    return dict(torch.load(_plain(path), map_location="cpu", weights_only=True, mmap=True))


def _plain(path: Path) -> Path:
    """The file with everything but shards."""
    return path / "meta.pt" if path.is_dir() else path


def _first_line(error: Exception) -> str:
    text = re.sub(r"\s+", " ", str(error))
    named = re.search(r"GLOBAL ([\w.]+)", text)
    return f"it names {named[1]}" if named else text[:80]
