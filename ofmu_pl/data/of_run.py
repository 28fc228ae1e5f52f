"""The data that a run had, made anew from the configuration that it saved."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

import yaml
from jsonargparse import ArgumentParser

from ofmu_pl.data.base import PairedDataModule


def data_of_run(config: Path, tokenizer: str | None) -> PairedDataModule:
    """Make the data module that a run had.

    Args:
        config: The run's ``config.yaml``.
        tokenizer: Tokenizer of text, which the run took from its network; images have none.
    """
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(PairedDataModule, "data")
    wanted = yaml.safe_load(config.read_text(encoding="utf-8"))["data"]
    kind = resolve_name(parser.parse_object({"data": wanted}).data.class_path)
    if tokenizer is not None and kind.modality == "text":
        wanted["init_args"] = {**(wanted.get("init_args") or {}), "tokenizer": tokenizer}
    data: PairedDataModule = parser.instantiate_classes(parser.parse_object({"data": wanted})).data
    return data
