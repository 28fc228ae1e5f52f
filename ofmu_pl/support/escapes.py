"""Text that leaves for a terminal, a table or a page: of others, without what would steer these, and for a shell."""

import os
import re
import shlex
import shutil
import sys

_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters but tab and line feed, and those that turn the direction of what follows."""


def visible(text: object) -> str:
    r"""Text with escapes instead of control characters.

    >>> visible("red \x1b[31m, title \x9b0;"), visible("two\nlines\tand é")
    ('red \\x1b[31m, title \\x9b0;', 'two\nlines\tand é')
    """
    return _STEERS.sub(lambda found: ascii(found[0])[1:-1], str(text))


def one_line(text: object) -> str:
    """The same on one line, so that nobody's text begins a line of its own."""
    return visible(text).replace("\n", "\\n")


def say(text: object) -> None:
    """Print a line."""
    print(visible(text))


def command(*words: str) -> str:
    """A command line of this program as a shell takes it here, also where no virtual environment is active."""
    here = shutil.which("ofmu_pl") is not None
    return shlex.join([*(["ofmu_pl"] if here else [os.path.relpath(sys.executable), "-m", "ofmu_pl"]), *words])
