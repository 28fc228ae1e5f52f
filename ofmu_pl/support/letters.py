"""Marks that belong to letters: vowel signs, points, accents. Python's regular expressions take none for a letter."""

import unicodedata

MARKS = "".join(c for c in map(chr, range(0x300, 0x12000)) if unicodedata.category(c)[0] == "M")
"""All of them, for a class of characters in a regular expression; scripts beyond these are of the past."""
SOFT = "\u00ad\u0640\u200c\u200d\u200e\u200f\u2060"
"""What may stand within a word and says nothing: soft hyphens, Arabic's stretches, joiners, marks of direction."""
