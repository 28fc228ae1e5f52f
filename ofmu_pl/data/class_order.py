"""The order in which a network has its classes."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from ofmu_pl.support.errors import UserError

Order = list[str | int] | Literal["natural"] | None


def in_order(names: Sequence[str], order: Order) -> tuple[str, ...]:
    """Put the names of classes in the order of a network's outputs; a list may name classes that have no images.

    Raises:
        UserError: A list lacks a class, or two names are one to it or to ``natural``.

    >>> in_order(["class_1", "class_10", "class_2"], "natural")
    ('class_1', 'class_2', 'class_10')
    >>> in_order(["cat", "dog"], ["dog", "owl", "cat"])
    ('dog', 'owl', 'cat')
    """
    if order is None:
        return tuple(names)
    key: Callable[[str], tuple[str | int, ...]] = _natural if order == "natural" else lambda name: (name,)
    given = sorted(names, key=key) if order == "natural" else list(map(str, order))
    for known in (names, given):
        for one, other in pairwise(sorted(known, key=key)):
            if key(one) == key(other):
                raise UserError(
                    f"The classes '{one}' and '{other}' are one to `data.classes`: give a list that names each class "
                    "once, in the order of the network's outputs."
                )
    missing, strange = sorted(set(names) - set(given)), sorted(set(given) - set(names))
    if missing:
        none = f" (and of '{strange[0]}' there is no image)" if strange else ""
        raise UserError(
            f"`data.classes` lacks '{missing[0]}', which is a class of the images{none}: name every class, in the "
            "order of the network's outputs."
        )
    return tuple(given)


def _natural(name: str) -> tuple[str | int, ...]:
    """A key that reads digits as numbers and capitals as small letters, as timm's readers of folders do."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name.lower()))
