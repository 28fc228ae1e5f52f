"""The room that a run's files take on the disk, asked for before the first iteration."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from ofmu_pl.support.errors import UserError


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
