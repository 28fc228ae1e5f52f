"""Configurations that others wrote are read and never run."""

from __future__ import annotations

from jsonargparse import set_parsing_settings

LOADERS = ("torch.hub", "torch.package", "torch.serialization", "torch.utils.cpp_extension")
"""What runs the code that it loads, beside what jsonargparse knows of (os, subprocess, pickle, importlib, ...)."""


def restrict_imports() -> None:
    """Let no value of a configuration name what runs code, nor make objects where an option has no type."""
    set_parsing_settings(import_path_denylist=list(LOADERS), instantiate_subclass_spec_in_any=False)
