"""The shipped configurations for data of one's own, as Python reads them: ``configs/text.yaml`` and ``images.yaml``.

The files beside this one are links to them, so that both ways of unlearning have one set of settings.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

import yaml


def shipped(modality: Literal["text", "images"]) -> dict[str, Any]:
    """Read the configuration for one kind of data.

    >>> sorted(shipped("text"))
    ['checkpoint', 'data', 'evaluation', 'model', 'trainer']
    """
    return dict(yaml.safe_load(Path(__file__).with_name(f"{modality}.yaml").read_text(encoding="utf-8")))


def arguments(section: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a section gives its class, with full classes within them ready to be called.

    >>> arguments({"class_path": "GradDiff", "init_args": {"optimizer": {"class_path": "torch.optim.SGD"}}})
    {'optimizer': functools.partial(<class 'torch.optim.sgd.SGD'>)}
    """
    given = section.get("init_args", {}) if "class_path" in section else section
    nested = {name: x for name, x in given.items() if isinstance(x, dict) and "." in x.get("class_path", "")}
    return given | {name: partial(resolve_name(x["class_path"]), **arguments(x)) for name, x in nested.items()}
