"""ROUGE-L: how much of a true text somebody has said, in its order, in any script."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby
from types import SimpleNamespace

import numpy as np
from rapidfuzz.distance import LCSseq
from rouge_score.tokenize import tokenize

Array = np.ndarray
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI ")
"""Beginnings of the names of characters whose scripts put no spaces between words: each is a word of its own."""
GREEK, PICTURES, EMOJI = "\u0370", "\u2600", "\U0001f000"
"""Where letters of other scripts begin, symbols that are pictures, and pictures alone, each of which is a word."""


def rouge_l_recall(references: Sequence[str], generations: Sequence[str]) -> Array:
    """ROUGE-L recall with stemming by Google's rouge-score, 0 for an empty reference or generation.

    rouge-score drops every letter but a to z. Words of other scripts than Latin, and emoji, count as well
    (``words_of``), without stemming; a reference without any word is compared by its characters.

    >>> rouge_l_recall(["the cat sat", "кот спал"], ["a cat sat down", "кот ел"]).round(3).tolist()
    [0.667, 0.5]
    """
    return np.array([n / wanted if n else 0.0 for n, wanted, _ in _common(references, generations, True)])


def rouge_l_f1(references: Sequence[str], generations: Sequence[str]) -> Array:
    """ROUGE-L's F1 without stemming, as MUSE takes it, by Google's rouge-score.

    >>> rouge_l_f1(["the cat sat"], ["a cat sat down"]).round(3).tolist()
    [0.571]
    """
    rates = [(n / said, n / wanted) if n else (0.0, 0.0) for n, wanted, said in _common(references, generations, False)]
    return np.array([2 * p * r / (p + r) if p else 0.0 for p, r in rates])


def rouge_l_recall_of_words(references: Sequence[str], generations: Sequence[str]) -> Array:
    """ROUGE-L recall of whole texts as the package ``rouge`` 1.0.1 counts it, and RWKU by it.

    A text is cut into sentences at every full stop, and a sentence into words at spaces: case, commas and question
    marks belong to words. Each word counts once. A word of the reference is found if it is in the longest common
    subsequence of its sentence and some sentence of the generation. Without any sentence the value is 0.

    Args:
        references: True texts.
        generations: What was said instead.

    >>> rouge_l_recall_of_words(["Leo Tolstoy", "Leo Tolstoy"], ["Leo Tolstoy.", "Leo tolstoy, a writer"]).tolist()
    [1.0, 0.5]
    """
    found = []
    for reference, generation in zip(references, generations, strict=True):
        said = _sentences(generation)
        words: set[str] = set()
        shared: set[str] = set()
        for sentence in _sentences(reference):
            words.update(sentence)
            for other in said:
                shared |= _common_words(sentence, other)
        found.append(len(shared) / len(words) if words else 0.0)
    return np.array(found, dtype=np.float64)


def _sentences(text: str) -> list[list[str]]:
    """Words of each sentence; spaces between two full stops are a sentence of an empty word."""
    return [part.split() or [""] for part in text.split(".") if part]


def _common_words(one: Sequence[str], other: Sequence[str]) -> set[str]:
    """Words of a longest common subsequence: read from the end, where two tie, the other's last word is dropped."""
    lengths = [[0] * (len(other) + 1)]
    for a in one:
        row = [0]
        for j, b in enumerate(other):
            row.append(lengths[-1][j] + 1 if a == b else max(lengths[-1][j + 1], row[j]))
        lengths.append(row)
    found, i, j = set(), len(one), len(other)
    while i and j:
        if one[i - 1] == other[j - 1]:
            found.add(one[i - 1])
            i, j = i - 1, j - 1
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found


def _common(references: Sequence[str], generations: Sequence[str], stemmed: bool) -> Iterator[tuple[int, int, int]]:
    """Of each pair, the length of the longest common subsequence of words, and how many words either text has."""
    latin = partial(tokenize, stemmer=_stemmer() if stemmed else None)
    for reference, generation in zip(references, generations, strict=True):
        wanted, said = words_of(reference, latin), words_of(generation, latin)
        if not wanted:  # signs alone
            wanted, said = (list("".join(text.split())) for text in (reference, generation))
        yield LCSseq.similarity(wanted, said), len(wanted), len(said)


@cache
def _stemmer() -> SimpleNamespace:
    """The stemmer of rouge-score, which finds each word's stem once, since stems would take longer than all else."""
    from nltk.stem.porter import PorterStemmer  # takes a second: sklearn

    return SimpleNamespace(stem=cache(PorterStemmer().stem))


def words_of(text: str, latin: Callable[[str], list[str]]) -> list[str]:
    """The words of a text in their order, composed (NFC): Latin ones as a function finds them, others in small letters.

    Of scripts without spaces, and of emoji, each character is a word; rouge-score knows the letters a to z alone.

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
