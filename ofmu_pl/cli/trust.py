"""What the user's own line trusts: modules by ``--trust``, and those of the working folder beside none of its files."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ofmu_pl.cli.words import fail
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import texts_in
from ofmu_pl.support.trust import OWN, PACKAGES, TRUSTED, lies_in, modules_in, restrict_imports
from ofmu_pl.support.yaml_files import LARGEST_YAML, read_yaml

TRUST = "--trust"


def without_trust(words: list[str]) -> list[str]:
    """Take ``--trust MODULE`` out of the user's words; the processes that the command starts trust these modules, too.

    Only the user's own line is read like this: words that a file has given rise to go to a worker as they are.
    """
    left, trusted = [], []
    rest = iter(words)
    for word in rest:
        option, _, module = word.partition("=")
        if option != TRUST:
            left.append(word)
            continue
        module = module or next(rest, "")
        if not all(part.isidentifier() for part in module.split(".")):
            fail(f"{TRUST} takes a module, such as {TRUST} my_package.datasets, not '{module}'.", 2)
        trusted.append(module)
    os.environ[TRUSTED] = " ".join([*modules_in(TRUSTED), *trusted])
    os.environ[OWN] = " ".join(_of_the_working_folder(left))
    restrict_imports()
    return left


def _of_the_working_folder(words: Sequence[str]) -> list[str]:
    """Modules of the working folder, and packages, that Python would import from there.

    A package is left out that holds anything that the words name, or that a configuration among it names: others may
    have written both. What Python has libraries of, and links, are left out, too.
    """
    here = Path.cwd()
    names = {path.stem for path in here.glob("*.py")} | {path.parent.name for path in here.glob("*/__init__.py")}
    names -= {"__main__", *(package.split(".")[0] for package in PACKAGES)}
    names -= {os.path.relpath(path).split(os.sep)[0] for path in _named(words)}
    return [name for name in sorted(names) if lies_in(here, name) and not (here / name).is_symlink()]


def _named(words: Sequence[str]) -> Iterator[str]:
    """Paths that words name, as they are and without links, and those that YAML files among them name."""
    waiting, known = list(words), set[str]()
    while waiting:
        word = waiting.pop()
        parts = word.split("=")
        for i in range(len(parts)):
            path = os.path.expanduser("=".join(parts[i:]))
            if path in known or "\0" in path or not os.path.exists(path):
                continue
            known.add(path)
            yield from (os.path.abspath(path), os.path.realpath(path))
            if path.endswith((".yaml", ".yml", ".json")) and os.path.isfile(path):
                with suppress(OSError, UserError):  # said where it is read for its options
                    waiting += texts_in(read_yaml(Path(path), LARGEST_YAML))
