"""Switches dropout off for good: activation checkpointing works in train mode only, where dropout would act."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel


def silence_dropout(model: PreTrainedModel) -> dict[str, float]:
    """Set every probability of dropping something to 0, in modules, in attributes that functions read, and in layers.

    Returns:
        What the configuration said, by field, so that an exported one can say it again.
    """
    said = _silenced(model.config)
    for module in model.modules():
        _silenced(module)
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return said


def _silenced(owner: object) -> dict[str, float]:
    found = {k: v for k, v in vars(owner).items() if "drop" in k and isinstance(v, float) and v > 0}
    for name in found:
        setattr(owner, name, 0.0)
    return found
