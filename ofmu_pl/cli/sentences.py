"""How a command ends: what a user can mend is one sentence on stderr and exit code 1."""

import codecs
import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper

from ofmu_pl.cli.words import fail
from ofmu_pl.support.errors import DivergedError, UserError, memory_is_full
from ofmu_pl.support.trust import UntrustedError
from ofmu_pl.training.interrupts import ADVICE, orderly
from ofmu_pl.training.noise import as_sentence

_WRITE = "cannot be written: allow it, or give another folder"
_FULL = "does not fit on a disk that is full: free some space"
_GONE = "is not there, or not any more: look whether it, or a folder above it, was removed or moved"
_BROKEN = "lies on a disk that reports an error: look at the system's messages, and give a folder on another disk"
UNREADABLE = "cannot be read: allow it, or give another file"
REFUSED = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST), _WRITE),
    **dict.fromkeys((errno.EIO, errno.EREMOTEIO, errno.ETIMEDOUT), _BROKEN),
    **dict.fromkeys((errno.ENOENT, errno.ESTALE, errno.ENODEV, errno.ENXIO), _GONE),
    errno.ELOOP: "is a link, which is not followed here: remove it",
    errno.ENAMETOOLONG: "is too long for the disk: give a shorter name",
}
"""What is said of a file that the system refuses, by its error."""
IN_WORDS, ARROWS = "ofmu_pl.in_words", {"↑": "up", "↓": "down", "→": "to"}
"""The handler of what a terminal's encoding lacks, and what it writes for an arrow; for others a question mark."""


@contextmanager
def one_sentence(words: list[str]) -> Iterator[None]:
    """A context for a command, by its ``words``, which ends in one sentence where a user can mend what is wrong."""
    advice = ADVICE.get(words[0] if words else "", "")
    warnings.formatwarning = as_sentence
    if isinstance(sys.stdout, TextIOWrapper):  # no terminal's encoding is worth the numbers of a run
        codecs.register_error(IN_WORDS, _in_words)
        sys.stdout.reconfigure(errors=IN_WORDS)
    try:
        with orderly(words):
            yield
    except (UserError, DivergedError) as error:
        fail(str(error))
    except (MemoryError, RuntimeError, ImportError) as error:
        met: BaseException | None = error
        while met is not None and not isinstance(met, UntrustedError):
            met = met.__cause__ or met.__context__
        if met is not None:
            fail(f"{met}.")
        if not memory_is_full(error):
            raise
        fail("This machine's memory is full: take a smaller network or batch, or end what else runs here.")
    except OSError as error:
        if error.errno == errno.EPIPE:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python fails once more when it ends
            fail(f"Nobody reads the output any more, so the command ended{advice}.")
        if error.errno not in REFUSED:
            raise
        named = str(error.filename or "")
        what = f"'{named:.300}'" if named else "The output"
        readable = not os.path.exists(named) or os.access(named, os.R_OK)
        then = advice if REFUSED[error.errno] in (_FULL, _BROKEN) else ""
        said = f"{what} {REFUSED[error.errno]} ({error.strerror}){then}."
        fail(said if readable else f"{named} {UNREADABLE}.")


def _in_words(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding lacks, and where to go on."""
    assert isinstance(error, UnicodeEncodeError), "the handler is of an output"
    return "".join(ARROWS.get(x, "?") for x in error.object[error.start : error.end]), error.end
