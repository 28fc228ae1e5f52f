"""What differs from one machine to another in paths of configurations: variables, and where the package lies.

Of a configuration that comes with the package ``ofmu_pl:tofu.yaml`` stands for the file wherever it lies.
"""

import os
import re
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any

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


def expanded(value: Any) -> Any:
    """A value with the environment's variable for ``${NAME}`` and the file for ``ofmu_pl:NAME``, in all texts it holds.

    Args:
        value: A text, or a list or a mapping of values; what is none of them stays.

    Raises:
        UserError: It is not set, or no configuration has this name.
    """
    if isinstance(value, dict):
        return {k: expanded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [expanded(v) for v in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise UserError(f"'{value}' needs the environment variable {match[1]}, which is not set: export it first.")
        return os.environ[match[1]]

    return located(re.sub(r"\$\{(\w+)\}", variable, value))
