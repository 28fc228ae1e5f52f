"""The files of a folder that is one source of rows: none is passed over where it would then not be forgotten."""

import os
import re
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.data.row_formats import READERS, kind_of
from ofmu_pl.support.errors import UserError

FORGOTTEN = ("data.forget", "data.full")
"""Options whose sources hold what must be forgotten."""
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})")


def files_of(folder: Path, option: str) -> list[Path]:
    """All files to read below a folder and in folders linked there; hidden ones are left out.

    Raises:
        UserError: A file to forget is of no kind that is read, there is none, or shards (``train-00000-of-00003``) are
            missing or of several data sets.
    """
    every = _walked(folder)
    strange = [path for path in every if kind_of(path) not in READERS]
    told = f"{len(strange)} of {len(every)} files of '{folder}' are of no kind that is read"
    if strange and option in FORGOTTEN:
        kinds = ", ".join(READERS)
        raise UserError(f"{told} and would not be forgotten (first: '{strange[0]}'; read are {kinds}): take them out.")
    if len(strange) == len(every):
        raise UserError(f"'{folder}' holds no file of {', '.join(READERS)}: give `{option}` a folder that does.")
    if strange:
        rank_zero_warn(f"{told}, and are passed over (first: '{strange[0]}').")
    paths = [path for path in every if kind_of(path) in READERS]
    shards = [found for path in paths if (found := SHARD.match(path.name))]
    names = sorted({found[1] for found in shards})
    if len(names) > 1:
        raise UserError(f"'{folder}' holds shards of {', '.join(names)}: give `{option}` a folder of one of them.")
    if shards and {int(found[2]) for found in shards} != set(range(int(shards[0][3]))):
        raise UserError(
            f"'{folder}' holds {len(shards)} of {int(shards[0][3])} shards of '{names[0]}': add the others."
        )
    return paths


def _walked(folder: Path) -> list[Path]:
    """All files below a folder that are not hidden; a folder that is there again by a link is read once."""
    found: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, onerror=_refused, followlinks=True):
        if os.path.realpath(place) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(place))
        found += [path for name in names if not hidden(path := Path(place, name), folder)]
    return sorted(found)


def _refused(error: OSError) -> None:
    raise UserError(f"The folder '{error.filename}' cannot be read ({error.strerror}): allow it, or take it out.")


def hidden(path: Path, below: Path) -> bool:
    """Whether a program keeps this file for itself: drafts, caches, trash have names with a dot in front."""
    return any(name.startswith(".") for name in path.relative_to(below).parts)
