"""What a run had, made anew from the configuration that it saved."""

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.support.classes import check_classes
from ofmu_pl.support.errors import UserError, reason
from ofmu_pl.support.trust import libraries_alone
from ofmu_pl.support.yaml_files import read_yaml


def data_of_run(config: Path, tokenizer: str | None) -> PairedDataModule:
    """Make the data module that a run had, with the tokenizer that text took from its network."""
    wanted = said_of_run(config, "data")
    _, values = _read(config, PairedDataModule, "data", wanted)
    if tokenizer is not None and resolve_name(values.data.class_path).modality == "text":
        wanted["init_args"] = {**(wanted.get("init_args") or {}), "tokenizer": tokenizer}
    data: PairedDataModule = part_of_run(config, PairedDataModule, "data", wanted)
    return data


def said_of_run(config: Path, *names: str) -> dict[str, Any]:
    """Read what the configuration of a run says of one part."""
    try:
        found = read_yaml(config)
    except OSError as error:
        raise UserError(f"'{config}' cannot be read ({error}): give the folder of a whole run.") from error
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        part = f"what the run had as '{'.'.join(names)}'" if names else "what the run had"
        raise UserError(f"'{config}' does not say {part}: put back the file that the run wrote, or give another run.")
    return found


def part_of_run(config: Path, base: type, name: str, wanted: object) -> Any:
    """Make one object that a run had; others may have written its configuration, so nothing but a class is called."""
    parser, values = _read(config, base, name, wanted)
    if _downloads(wanted):
        raise UserError(f"The {name} that '{config}' names would be downloaded: do so yourself, then set it there.")
    try:
        with libraries_alone():
            return parser.instantiate(values)[name]
    except UserError:
        raise
    except (ValueError, TypeError, RuntimeError, ImportError, OSError) as error:
        raise UserError(
            f"The {name} of '{config}' cannot be made ({reason(error)}): put back what it needs."
        ) from error


def _downloads(wanted: object) -> bool:
    """Whether a class anywhere in it is told to download what it reads."""
    parts = wanted.items() if isinstance(wanted, dict) else enumerate(wanted) if isinstance(wanted, list) else ()
    return any((key == "download" and part) or _downloads(part) for key, part in parts)


def _read(config: Path, base: type, name: str, wanted: object) -> tuple[ArgumentParser, Any]:
    """A parser for one part of a run, and the part's values, which name nothing of the working folder."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(base, name)
    try:
        with libraries_alone():
            values = parser.parse_object({name: wanted})
    except ArgumentError as error:
        cause: BaseException = error
        while (deeper := cause.__cause__ or cause.__context__) is not None:
            cause = deeper
        raise UserError(
            f"The {name} that '{config}' names cannot be made ({' '.join(str(cause).split())[:200].rstrip('.')}): read "
            "the code of its class, then trust its module (--trust MODULE), or give another run."
        ) from error
    check_classes(values)
    return parser, values
