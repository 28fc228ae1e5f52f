"""Checks that a file of weights holds all of the network's tensors and no others: an absent one would stay random."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from ofmu_pl.support.errors import UserError

NAMED = 3
"""Number of tensors of each kind that the error names; the others are counted."""


def check_tensors(
    source: str | Path,
    missing: Collection[str],
    unexpected: Collection[str],
    misshapen: Iterable[tuple[str, Sequence[int], Sequence[int]]],
    described: str = "its config.json",
) -> None:
    """Refuse weights that do not fit the network described beside them."""
    shapes = [f"{name} ({_shape(found)}, not {_shape(wanted)})" for name, found, wanted in misshapen]
    faults = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
    found = "; ".join(f"{fault}: {_listed(names)}" for fault, names in faults if names)
    if found:
        raise UserError(
            f"The weights in '{source}' are not those of the network that {described} describes ({found}): get or "
            f"export the model anew, or correct {described}."
        )


def _listed(names: Collection[str]) -> str:
    first = ", ".join(sorted(names)[:NAMED])
    return first + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _shape(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes)) or "one number"
