"""Parsers of the commands: errors in one line, and files that could fill the memory or never end are refused first."""

import os
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import yaml
from jsonargparse import Namespace, get_loader, set_loader
from lightning.pytorch.cli import LightningArgumentParser

from ofmu_pl.cli.errors import OptionError, explain
from ofmu_pl.cli.words import fail
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import regular
from ofmu_pl.support.shipped import PREFIX, names
from ofmu_pl.support.yaml_files import LARGEST_YAML, check_yaml, read_yaml


class Parser(LightningArgumentParser):
    """A parser whose errors are one line, without pages of usage, and whose options are written out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def parse_args(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Namespace:
        """Parse words; jsonargparse hands a ``null`` within a class within a class on as the text ``None``."""
        if args is not None and not self.exit_on_error:
            args = [word.removesuffix("None") + "null" if word.endswith("=None") else word for word in args]
        return super().parse_args(args, *more, **options)

    def dump(self, namespace: Namespace, *args: Any, **options: Any) -> str:
        """Write a configuration as text, without checking it against its types once more: it was parsed.

        A class's default that has no name, as a torchvision ViT's ``partial(LayerNorm)``, is left to the class.
        """
        written = namespace.clone()
        for key in [k for k, value in namespace.items() if isinstance(value, partial)]:
            del written[key]
        return str(super().dump(written, *args, **{**options, "skip_validation": True}))

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the message and exit with code 2.

        Raises:
            OptionError: The parser is of a class within the words, and jsonargparse goes on to try alternatives.
        """
        if not self.exit_on_error:
            raise OptionError(message, self.get_defaults(skip_validation=True).keys()) from ex
        parser = getattr(ex, "subcommand_parser", None) or self
        text = explain(message, ex, parser.get_defaults(skip_validation=True).keys())
        classes = ", or --model.help CLASS" if parser.prog.endswith((" fit", " plan")) else ""
        fail(f"{text} (options: {parser.prog} --help{classes}).", 2)


_load = get_loader("yaml")
_KEY = re.compile(r"[a-z_][a-z0-9_.]*")


def load_yaml(text: str) -> Any:
    """The value of a YAML text, as jsonargparse's own loader has it."""
    line = "\n" not in text  # as the value of an option
    if line and text.startswith("#"):  # "### {question}" is no comment
        return text
    check_yaml(text, "The configuration")
    found = _load(text)
    return text if line and isinstance(found, dict) and _is_prose(text, found) else found


def _is_prose(text: str, mapping: dict[Any, Any]) -> bool:
    """Whether a line that YAML reads as a mapping is words, as ``Q: {question}`` is and ``r: 16`` is not."""
    if text.lstrip().startswith("{"):
        return False
    return "{question}" in text or not all(_KEY.fullmatch(str(name)) for name in mapping)


def check_files(words: Sequence[str]) -> None:
    """Refuse files of configurations that cannot be read, by name: a parser no longer knows which one it was."""
    for word in _configurations(words):
        path = regular(Path(os.path.expanduser(word)))  # which leaves the home of nobody alone
        if path.is_dir():
            raise UserError(f"The configuration '{word}' is a folder: name one of the files in it.")
        if path.suffix in (".yaml", ".yml", ".json") and not path.is_file():
            near = get_close_matches(path.as_posix().rpartition("configs/")[2], names(), n=1)
            hint = f" (did you mean {PREFIX}{near[0]}?)" if near else " (`ofmu_pl configs` lists those that come along)"
            raise UserError(f"The configuration '{word}' does not exist{hint}: give another file.")
        if path.is_file():
            read_yaml(path, LARGEST_YAML)


def _configurations(words: Sequence[str]) -> Iterator[str]:
    """What stands behind the options that name a configuration, whatever it is."""
    for word, following in pairwise([*words, ""]):
        option, _, value = word.partition("=")
        if option in ("--config", "-c") and (value or following):
            yield value or following


set_loader("yaml", load_yaml, (yaml.YAMLError,))
