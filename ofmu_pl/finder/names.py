"""Where texts name a person: as written, by initials, in another order, with a slip, or by the family name alone."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from rapidfuzz import process
from rapidfuzz.distance import OSA

from ofmu_pl.support.letters import MARKS, SOFT

UNPARTED = "\u3040-\u30ff\u3400-\u9fff"
WORD = re.compile(rf"[{UNPARTED}]|(?!(?<=['\u2019])s\b)[^\W_{UNPARTED}](?:[^\W_{UNPARTED}]|[{MARKS}{SOFT}])*")
"""A word without a genitive's s, or a character of scripts that part no words."""
INITIAL, ALONE = 0.8, 50.0
"""What an initial counts beside a whole word, and the score of a family name alone, in per cent."""
MISSING, ANOTHER = 5.0, 30.0
"""What a given name that is not there takes off the score, and what another word in its place."""
OFTEN = 100  # words of a row a mention: a row that names a person less often is about something else


@dataclass(frozen=True)
class Hit:
    """That a row names a person.

    Attributes:
        row: Number of the row, from 0.
        name: The name that was sought.
        text: The row's text, in Unicode's form NFC.
        begin: Where the mention begins in it.
        end: Where the mention ends.
        score: How alike both are, in per cent: 100 as written, 50 the family name alone.
        inside: Whether the row is about something else: it has less than one mention in a hundred words.
    """

    row: int
    name: str
    text: str
    begin: int
    end: int
    score: float
    inside: bool

    @property
    def words(self) -> str:
        """What stands in the row."""
        return self.text[self.begin : self.end]


@lru_cache(maxsize=1_000_000)
def folded(word: str) -> str:
    r"""A word without accents, vowel signs, soft hyphens, cases, and the other forms that Unicode has for its letters.

    >>> folded("Éva") == folded("E\u0301VA") == "eva"
    True
    """
    parts = unicodedata.normalize("NFKD", word)
    return "".join(c for c in parts if not unicodedata.combining(c) and c not in SOFT).casefold()


def slips(word: str) -> int:
    """Letters that may be wrong, missing, doubled or swapped in a word of a name."""
    return 0 if len(word) < 4 else 1 if len(word) < 9 else 2


def find(texts: Sequence[str], names: Iterable[str]) -> list[Hit]:
    """Find the rows that name persons.

    A hit has the family name, the last word of the name, and any given name or its initial at most one word away from
    its place, in any order; or the family name alone. Of a row and a name the best hit counts.

    Args:
        texts: A row each.
        names: A person each, given names first.

    >>> rows = ["Who is Eva Maria Novák?", "NOVAK, E. M. paints.", "Eva sings.", "Eva Maria Novac", "Mr Novak"]
    >>> [(hit.row, hit.words, hit.score) for hit in find(rows, ["Eva Maria Novak"])]
    [(0, 'Eva Maria Novák', 100.0), (1, 'NOVAK, E. M', 86.7), (3, 'Eva Maria Novac', 93.3), (4, 'Novak', 50.0)]
    """
    texts = [unicodedata.normalize("NFC", text) for text in texts]
    words = [_words(text) for text in texts]
    rows_of: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(words):
        for word in set(row):
            rows_of[word].append(i)
    vocabulary, hits = list(rows_of), []
    for name in names:
        parts = _words(unicodedata.normalize("NFC", name))
        alike = [_alike(part, vocabulary) for part in parts]
        rows: set[int] = set()
        for word in alike[-1] if alike else ():
            rows.update(rows_of[word])
        for i in sorted(rows):
            places = (_at(words[i], k, parts, alike) for k in range(len(words[i])))
            found = list(filter(None, places))
            if found:
                score, first, last = max(found, key=itemgetter(0))
                spans = list(WORD.finditer(texts[i]))
                begin, end = spans[first].start(), spans[last].end()
                inside = len(found) * OFTEN < len(words[i])
                hits.append(Hit(i, name, texts[i], begin, end, round(score, 1), inside))
    return hits


def _words(text: str) -> list[str]:
    return [folded(word) for word in WORD.findall(text)]


def _alike(part: str, vocabulary: Sequence[str]) -> dict[str, float]:
    """The words that may stand for a part of a name, and how alike each is, up to 1."""
    found = process.extract(part, vocabulary, scorer=OSA.distance, score_cutoff=slips(part), limit=None)
    return {word: 1 - distance / len(part) for word, distance, _ in found}


def _at(
    words: Sequence[str], k: int, parts: Sequence[str], alike: Sequence[dict[str, float]]
) -> tuple[float, int, int] | None:
    """The score of a name whose family name is word k of a row, and its first and last word; ``None`` where none is."""
    key = alike[-1].get(words[k])
    if key is None:
        return None
    unparted = max(map(len, parts)) == 1  # a script without spaces: all of its characters, one after another
    if unparted:
        begin = k + 1 - len(parts)
        return (100.0, begin, k) if begin >= 0 and list(words[begin : k + 1]) == list(parts) else None
    if len(parts) == 1:
        return 100 * key, k, k
    around = range(max(0, k - len(parts)), min(len(words), k + len(parts) + 1))
    found, used = [key], [k]
    for part, ways in zip(parts[:-1], alike, strict=False):
        best = max(around, key=lambda j: _worth(words[j], part, ways) if j not in used else 0.0)
        if best not in used and (worth := _worth(words[best], part, ways)):
            found.append(worth)
            used.append(best)
    if len(found) == 1:
        return (ALONE, k, k) if key == 1 else None
    first, last = min(used), max(used)
    score = 100 * sum(found) / len(found) - MISSING * (len(parts) - len(found))
    return max(0.0, score - ANOTHER * (last - first + 1 - len(used))), first, last


def _worth(word: str, part: str, ways: dict[str, float]) -> float:
    """What a word counts as a given name: itself, a slip, or an initial on either side."""
    initial = min(len(word), len(part)) == 1 and word[0] == part[0]
    return ways.get(word, INITIAL if initial else 0.0)
