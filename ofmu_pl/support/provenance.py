"""Where a result comes from: code, data and versions, written beside every output, and compared before numbers are."""

import hashlib
import json
import platform
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ofmu_pl import __version__
from ofmu_pl.support.files import file_hash, text_hash
from ofmu_pl.support.version import RESULTS_VERSION

NO_SETTINGS = {"_name_or_path", "architectures", "base_model_name_or_path", "dtype", "inference_mode", "torch_dtype"}
NO_SETTINGS |= {"transformers_version", "use_cache"}
"""Fields of configurations that say where a model comes from and how it is held, not what it computes."""
STARTED_IN = "started_in"  # fact of a run: the folder that its relative paths lead from, as seen from the run's own
PACKAGES = ("torch", "lightning", "transformers", "torchmetrics", "datasets", "scipy", "rouge-score", "tokenizers")


def provenance(datamodule: Any, **more: Any) -> dict[str, Any]:
    """Collect what produced a result.

    Args:
        datamodule: The data, whose ``name``, ``hashes`` and ``facts`` are kept.
        more: Facts of the run (method, seed, what the weights were trained on).
    """
    return {
        **more,
        "benchmark": datamodule.name,
        "hashes": dict(datamodule.hashes),
        **datamodule.facts,
        "git": _git_commit(),
        "ofmu_pl": __version__,
        "results_version": RESULTS_VERSION,
        "python": platform.python_version(),
        "versions": versions(*PACKAGES),
    }


def weights_hash(model: nn.Module) -> str:
    """First 16 hex digits of the SHA-256 of a module's state: names, dtypes, shapes, bytes."""
    digest = hashlib.sha256()
    for name, stored in sorted(model.state_dict().items()):
        value = stored.full_tensor() if isinstance(stored, DTensor) else stored
        digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def config_hash(model: nn.Module, generates: bool = False) -> str:
    """First 16 hex digits of the SHA-256 of what a network computes by, beside its weights: settings and own code.

    Args:
        model: A network; one that is no Hugging Face model has no settings.
        generates: Whether its own way to generate (``generation_config``) counts, too.
    """
    parts = [getattr(model, "config", None), *getattr(model, "peft_config", {}).values()]
    parts += [getattr(model, "generation_config", None)] if generates else []
    settings: list[object] = [_settings(part.to_dict()) for part in parts if hasattr(part, "to_dict")]
    settings += [getattr(model, "active_adapter", None), code_of(*model.modules())]
    words = json.dumps(settings, sort_keys=True, default=lambda x: sorted(x) if isinstance(x, set) else str(x))
    return text_hash(words)


def _settings(x: object) -> object:
    """The fields of a configuration that count, as JSON has them, at any depth."""
    if isinstance(x, dict):
        return {str(k): _settings(v) for k, v in x.items() if k not in NO_SETTINGS}
    return [_settings(v) for v in x] if isinstance(x, list | tuple) else x


def _git_commit() -> str | None:
    """The commit of the code, with ``+`` if files differ from it; ``None`` outside a clone."""
    try:
        commit = _git("rev-parse", "HEAD", "HEAD:./").split()[0]  # fails in a repository that has no such folder
        changed = _git("status", "--porcelain", "--untracked-files=no", ".").strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+" if changed else "")


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parents[1]), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout


def versions(*names: str) -> dict[str, str | None]:
    """Versions of packages by name; ``None``: it is not installed."""
    found: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def code_of(*things: object) -> dict[str, str]:
    """Sums of the files that hold the classes of things, by class; packages and this one have versions instead."""
    found = {}
    for kind in {type(thing) for thing in things}:
        path = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
        installed = {"site-packages", "dist-packages"} & {*path.parts} or kind.__module__.startswith("ofmu_pl.")
        if path.is_file() and not installed:
            found[f"{kind.__module__}.{kind.__qualname__}"] = file_hash(path)
    return found
