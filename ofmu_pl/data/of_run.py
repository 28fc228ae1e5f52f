"""The data that a run had, made anew from the configuration that it saved."""

from __future__ import annotations

from pathlib import Path

import yaml
from jsonargparse import ArgumentParser

from ofmu_pl.data.base import PairedDataModule


def data_of_run(config: Path, tokenizer: str | None) -> PairedDataModule:
    """Make the data module that a run had.

    Args:
        config: The run's ``config.yaml``.
        tokenizer: Tokenizer, which the run took from its network; ``None``: the data are images.
    """
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(PairedDataModule, "data")
    wanted = yaml.safe_load(config.read_text(encoding="utf-8"))["data"]
    if tokenizer is not None:
        wanted["init_args"] = {**(wanted.get("init_args") or {}), "tokenizer": tokenizer}
    data: PairedDataModule = parser.instantiate_classes(parser.parse_object({"data": wanted})).data
    return data
