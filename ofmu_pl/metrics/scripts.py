"""Words of texts in any script, where Google's rouge-score knows the letters a to z alone."""

from __future__ import annotations

import unicodedata
from functools import cache

UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI ")
"""Beginnings of the names of characters whose scripts put no spaces between words: each is a word of its own."""


def mostly_ascii(text: str) -> bool:
    """Whether at least half of a text's letters are of ASCII, or it has none.

    >>> mostly_ascii("Jaime Vásquez, 1990"), mostly_ascii("Он родился в Tomsk"), mostly_ascii("1990")
    (True, False, True)
    """
    if text.isascii():
        return True
    letters = [c.isascii() for c in text if c.isalpha()]
    return 2 * sum(letters) >= len(letters)


def words_of(text: str) -> list[str]:
    """The words of a text in small letters, without punctuation; of scripts without spaces the characters.

    >>> words_of("Он жил - в Томске."), words_of("他出生于1990年")
    (['он', 'жил', 'в', 'томске'], ['他', '出', '生', '于', '1990', '年'])
    """
    return "".join(map(_spaced, text.lower())).split()


@cache
def _spaced(character: str) -> str:
    """A character, between spaces where it is a word, or a space where it belongs to none."""
    if unicodedata.name(character, "").startswith(UNSPACED):
        return f" {character} "
    return character if unicodedata.category(character)[0] in "LMN" else " "
