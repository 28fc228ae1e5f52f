"""Shapes of the paper's language models, so that a plan and a dry run need nothing from the hub."""

from __future__ import annotations

from pathlib import Path

SHAPES = Path(__file__).parent / "shapes"
"""Folders with the config.json of each, named by what the hub ids of its variants have in common."""


def known_shape(source: str) -> Path | None:
    """The folder with config.json of a model on the hub.

    Returns:
        The folder; ``None``: the model is not one of the paper's.

    Example:
        >>> known_shape("open-unlearning/tofu_Llama-2-7b-chat-hf_full").name
        'llama-2-7b'
    """
    if source.count("/") != 1:
        return None
    return next((folder for folder in sorted(SHAPES.iterdir()) if folder.name in source.lower()), None)
