"""``completion``: a script with which a shell completes commands, and the options that their help names."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress

from ofmu_pl.support.extras import extra

FILES = ("config", "runs", "foreign")
"""Options whose values are files."""


def completion(shell: str, commands: Mapping[str, str], run: Callable[[list[str]], None]) -> str:
    """Make the script.

    A shell that asked the program at each key would wait for torch, so everything stands in the script.

    Args:
        shell: Name of the shell, one of shtab's.
        commands: What each command does, by its name.
        run: Runs words, for the help of each command.

    Raises:
        UserError: The package shtab is not installed.
    """
    shtab = extra("shtab", "The command completion")
    parser = argparse.ArgumentParser("ofmu_pl")
    known = parser.add_subparsers()
    for name, line in commands.items():
        of_command = known.add_parser(name, help=line, add_help=False)
        for option in options(_help(name, run)):
            argument = of_command.add_argument(f"--{option}", nargs="?")
            if option in FILES:
                argument.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
    return str(shtab.complete(parser, shell))


def options(text: str) -> list[str]:
    r"""Names of the options that a help names at the beginning of lines.

    Args:
        text: The help.

    Example:
        >>> options("usage: ofmu_pl report [--x X]\n  -h, --help  Show.\n  --foreign FOLDER [FOLDER ...]")
        ['foreign', 'help']
    """
    return sorted(set(re.findall(r"^ +(?:-\w(?: \S+)?, )?--([\w.]+)", text, re.MULTILINE)))


def _help(command: str, run: Callable[[list[str]], None]) -> str:
    said = io.StringIO()
    with redirect_stdout(said), suppress(SystemExit):
        run([command, "--help"])
    return said.getvalue()
