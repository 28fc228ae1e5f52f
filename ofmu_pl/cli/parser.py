"""Parsers of the commands: errors in one line, and YAML that could fill the memory or never end is refused first."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NoReturn

import yaml
from jsonargparse import Namespace, get_loader, set_loader
from lightning.pytorch.cli import LightningArgumentParser

from ofmu_pl.cli.errors import OptionError, explain
from ofmu_pl.cli.words import fail
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.shipped import PREFIX, names


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


LARGEST = 100_000
"""Nodes of a configuration with its aliases written out; the largest shipped one has a fiftieth."""
DEEPEST = 100
"""Collections within collections; the deepest shipped configuration has ten."""
_load = get_loader("yaml")
_KEY = re.compile(r"[a-z_][a-z0-9_.]*")


def load_yaml(text: str) -> Any:
    """The value of a YAML text, as jsonargparse's own loader has it.

    Aliases share what they name until a parser copies it: ten levels of ten aliases are 10^10 nodes.
    """
    line = "\n" not in text  # as the value of an option
    if line and text.startswith("#"):  # "### {question}" is no comment
        return text
    try:
        _check_depth(text)
        if "&" in text and "*" in text:
            _size(yaml.compose(text, Loader=yaml.SafeLoader), {})
        found = _load(text)
    except RecursionError:
        raise UserError("The configuration is nested too deeply: write it with fewer brackets.") from None
    return text if line and isinstance(found, dict) and _is_prose(text, found) else found


def _is_prose(text: str, mapping: dict[Any, Any]) -> bool:
    """Whether a line that YAML reads as a mapping is words, as ``Q: {question}`` is and ``r: 16`` is not."""
    if text.lstrip().startswith("{"):
        return False
    return "{question}" in text or not all(_KEY.fullmatch(str(name)) for name in mapping)


def _check_depth(text: str) -> None:
    """Count brackets and indents before a parser, which is in C and ends the process, follows them."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise RecursionError


def check_files(words: Sequence[str]) -> None:
    """Refuse files of configurations that cannot be read, by name: a parser no longer knows which one it was."""
    for word in _configurations(words):
        path = Path(word).expanduser()
        if path.is_dir():
            raise UserError(f"The configuration '{word}' is a folder: name one of the files in it.")
        if path.suffix in (".yaml", ".yml", ".json") and not path.is_file():
            near = get_close_matches(path.as_posix().rpartition("configs/")[2], names(), n=1)
            hint = f" (did you mean {PREFIX}{near[0]}?)" if near else " (`ofmu_pl configs` lists those that come along)"
            raise UserError(f"The configuration '{word}' does not exist{hint}: give another file.")
        if path.is_file():
            try:
                load_yaml(path.read_text(encoding="utf-8"))
            except (UnicodeDecodeError, yaml.YAMLError) as error:
                why = " ".join(str(error).split())
                raise UserError(f"The configuration '{path}' is no YAML in UTF-8 ({why}): mend it.") from error


def _configurations(words: Sequence[str]) -> Iterator[str]:
    """What stands behind the options that name a configuration, whatever it is."""
    for word, following in pairwise([*words, ""]):
        option, _, value = word.partition("=")
        if option in ("--config", "-c") and (value or following):
            yield value or following


def _size(node: yaml.Node | None, known: dict[int, int]) -> int:
    """Nodes from here on with every alias written out."""
    if id(node) not in known:
        known[id(node)] = LARGEST  # met again from within, it contains itself
        children = [] if isinstance(node, yaml.ScalarNode) or node is None else node.value
        if isinstance(node, yaml.MappingNode):
            children = chain.from_iterable(children)  # of pairs
        known[id(node)] = 1 + sum(_size(child, known) for child in children)
        if known[id(node)] > LARGEST:
            raise UserError(
                f"The configuration has aliases (*NAME) that make it larger than {LARGEST} nodes, or that contain "
                "themselves: write out what they name."
            )
    return known[id(node)]


set_loader("yaml", load_yaml, (yaml.YAMLError,))
