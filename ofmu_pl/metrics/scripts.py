"""Words of texts in any script, where Google's rouge-score knows the letters a to z alone."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import groupby

UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI ")
"""Beginnings of the names of characters whose scripts put no spaces between words: each is a word of its own."""
GREEK, PICTURES, EMOJI = "\u0370", "\u2600", "\U0001f000"
"""Where letters of other scripts begin, symbols that are pictures, and pictures alone, each of which is a word."""


def words_of(text: str, latin: Callable[[str], list[str]]) -> list[str]:
    """The words of a text in their order, composed (NFC): Latin ones as a function finds them, others in small letters.

    Of scripts without spaces, and of emoji, each character is a word.

    Args:
        text: The text.
        latin: Finds the words of what is no letter or digit of another script.

    >>> words_of("Он жил в Tomsk.", str.split), words_of("他出生于1990年", str.split)
    (['он', 'жил', 'в', 'Tomsk.'], ['他', '出', '生', '于', '1990', '年'])
    """
    text = unicodedata.normalize("NFC", text).replace("\ufe0f", "")  # which asks for a picture in colours
    words: list[str] = []
    for other, run in groupby(zip(text, _others(text), strict=True), key=lambda x: x[1]):
        part = "".join(character for character, _ in run)
        words += "".join(map(_spaced, part.lower())).split() if other else latin(part)
    return words


def _others(text: str) -> list[bool]:
    """Whether each character is of another script than Latin; a mark is of its letter's."""
    found = [False]
    for character in text:
        mark = unicodedata.category(character)[0] == "M"
        found.append(found[-1] if mark else _other(character))
    return found[1:]


@cache
def _other(character: str) -> bool:
    letter = character >= GREEK and (character.isalpha() or character.isdecimal()) and not _named(character, "LATIN ")
    return letter or _picture(character)


def _picture(character: str) -> bool:
    return character >= EMOJI or (character >= PICTURES and unicodedata.category(character) == "So")


@cache
def _spaced(character: str) -> str:
    """A character, between spaces where it is a word."""
    return f" {character} " if _picture(character) or _named(character, *UNSPACED) else character


def _named(character: str, *beginnings: str) -> bool:
    return unicodedata.name(character, "").startswith(beginnings)
