"""Configurations that come with the package, by name: ``ofmu_pl:tofu.yaml`` stands for the file wherever it lies."""

import re
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below

PREFIX = "ofmu_pl:"
_PACKAGE = Path(__file__).parents[1]


def folder() -> Path:
    """Where the configurations lie: within the installed package, or beside it in a checkout."""
    inside = _PACKAGE / "configs"
    return inside if inside.is_dir() else _PACKAGE.parent / "configs"


def names() -> list[str]:
    """Names of all of them, such as ``methods/npo.yaml``, those of the top level first."""
    found = (path.relative_to(folder()) for path in folder().rglob("*.yaml"))
    return [path.as_posix() for path in sorted(found, key=lambda path: (len(path.parts), path))]


def located(text: str) -> str:
    """A path with the file instead of ``ofmu_pl:NAME``; any other text stays.

    Raises:
        UserError: No configuration has this name.

    Example:
        >>> from pathlib import Path
        >>> Path(located("ofmu_pl:methods/npo.yaml")).name, located("mine.yaml")
        ('npo.yaml', 'mine.yaml')
    """
    if not text.startswith(PREFIX):
        return text
    name = text.removeprefix(PREFIX)
    path = below(folder(), name, "A configuration that comes with ofmu_pl")
    if not path.is_file():
        near = get_close_matches(name, names(), n=1)
        hint = f" (did you mean {PREFIX}{near[0]}?)" if near else ""
        raise UserError(f"'{text}' is no configuration that comes with ofmu_pl{hint}: see `ofmu_pl configs`.")
    return str(path)


def about(name: str) -> str:
    """The first sentence of a configuration's own comment, without the commands in it."""
    lines = (folder() / name).read_text(encoding="utf-8").splitlines()
    comment = takewhile(lambda line: line.startswith("# ") and not line.startswith("#  "), lines)
    text = " ".join(line.removeprefix("# ") for line in comment)
    return re.split(r"(?<!al)[.:;] (?=[A-Z])", text)[0].rstrip(".:")
