"""What others wrote, configurations and checkpoints, is read and never run."""

from __future__ import annotations

import zipfile
from pathlib import Path
from pickle import UnpicklingError
from pkgutil import resolve_name
from typing import Any

import torch
from jsonargparse import Namespace, set_parsing_settings

from ofmu_pl.errors import UserError

LOADERS = ("torch.hub", "torch.package", "torch.serialization", "torch.utils.cpp_extension")
"""What runs the code that it loads, beside what jsonargparse knows of (os, subprocess, pickle, importlib, ...)."""


def restrict_imports() -> None:
    """Let no value of a configuration name what runs code, nor make objects where an option has no type."""
    set_parsing_settings(import_path_denylist=list(LOADERS), instantiate_subclass_spec_in_any=False)


def check_classes(values: Any) -> None:
    """Refuse functions in the place of classes, before anything is made: jsonargparse would call any.

    Args:
        values: Of a parsed configuration.

    Raises:
        UserError: A ``class_path`` names no class.
    """
    if isinstance(values, Namespace):
        values = vars(values)
    if isinstance(values, list):
        for value in values:
            check_classes(value)
    if not isinstance(values, dict):
        return
    path = values.get("class_path")
    if path is not None and not _is_class(path):
        raise UserError(
            f"The class_path '{path}' is no class: name one that the option takes (of an optimizer, a subclass of "
            "torch.optim.Optimizer)."
        )
    check_classes(list(values.values()))


def _is_class(path: Any) -> bool:
    try:
        return isinstance(resolve_name(path), type)
    except (ImportError, AttributeError, ValueError, TypeError):
        return False


def check_checkpoint(path: str | None) -> None:
    """Refuse a checkpoint that could run code or change the configuration.

    Args:
        path: What --ckpt_path says; words of Lightning's and addresses are left to it.

    Raises:
        UserError: It is a folder of shards (whose index is unpickled), holds other objects than tensors and plain
            values, or brings options of its own, which Lightning would put in the place of the configuration's.
    """
    if path is None or not Path(path).exists():
        return
    if Path(path).is_dir():
        raise UserError(
            f"The checkpoint '{path}' is a folder of shards, whose index can run code: set the strategy's "
            "save_distributed_checkpoint to false, and give the one file that a run then writes."
        )
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except UnpicklingError as error:
        raise refused(f"'{path}'") from error
    if "hyper_parameters" in checkpoint:
        raise UserError(
            f"The checkpoint '{path}' brings options of its own (hyper_parameters), which would take the place of "
            "yours: give one that a run of ofmu_pl wrote."
        )


def refused(what: str) -> UserError:
    """The error for a checkpoint that ``weights_only`` refuses."""
    return UserError(
        f"The checkpoint {what} holds more than tensors and plain values, so that loading it could run code, or is "
        "damaged: give one that a run of ofmu_pl wrote as --ckpt_path."
    )
