"""Parsers of the commands: what is wrong with the words is said in one line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser

from ofmu_pl.cli.errors import OptionError, explain
from ofmu_pl.cli.words import fail
from ofmu_pl.cli.yaml_files import load_yaml  # noqa: F401  takes the place of the parsers' own


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
