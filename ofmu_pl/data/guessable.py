"""Which tokens of an answer can be guessed without having seen it: those it copies, and those that retained rows use.

    copied : the token's word stands in the question, or the token and one beside it do; of a token that holds a part
             of a character its word alone is asked
    usual  : retained rows continue so, after the longest of the 3, 2 or 1 tokens before it that two of them have
    own    : neither; a row's facts are among these

No network is asked, so that the same tokens are meant before and after unlearning, for every method.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from ofmu_pl.data.encoded import Encoded
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.tokenizers import Tokenizer, special_ids
from ofmu_pl.losses import IGNORED
from ofmu_pl.support.letters import MARKS

OWN, USUAL, COPIED = 0, 1, 2
READ = 128_000  # most tokens of retained rows that are read, prompts and all: 2,000 rows of TOFU
LONGEST = 3  # most tokens of context
COPY = -1  # stands for a run of copied tokens in a context, so that what follows one name follows every name
WORDS = re.compile(rf"[^\W\d_]+(?:[{MARKS}]+[^\W\d_]*)*|\d+")  # an e-mail address holds those of a name and its digits
WORD = 3  # least letters of a word that counts as copied wherever it stands

PART = "\ufffd"  # what a decoder writes for a part of a character

Context = tuple[int, ...]
Piece = tuple[int, int, str | None]  # a token's characters in a text, from and to; and these, where it holds no part


def facts_loss(losses: np.ndarray, own: np.ndarray) -> float:
    """Mean loss of an answer's tokens that cannot be guessed; of all tokens, where there are none.

    >>> facts_loss(np.array([1.0, 5.0]), np.array([False, True])), facts_loss(np.array([1.0, 5.0]), np.zeros(2, bool))
    (5.0, 3.0)
    """
    return float((losses[own] if own.any() else losses).mean())


class Guessable:
    """Tells the kinds of the tokens of answers.

    Args:
        tokenizer: The tokenizer of the rows.
        retained: Retained rows as tokens, with labels on their answers.

    Example:
        >>> from ofmu_pl.data.own_tokenizer import train_tokenizer
        >>> tokenizer = train_tokenizer(["Who is Ann Lee ? Ann Lee is a baker from Rome .", "user assistant"])
        >>> def row(question, answer):
        ...     q, a = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (question, answer))
        ...     return Encoded(q + a, [IGNORED] * len(q) + a, len(q))
        >>> known = [row(f"Who is {name} ?", f" {name} is a baker .") for name in ("Ann", "Rome")]
        >>> kinds = Guessable(tokenizer, known).kinds(row("Who is Lee ?", " Lee is a from ."))
        >>> [["own", "usual", "copied"][kind] for kind in kinds]
        ['copied', 'usual', 'usual', 'own', 'own']
    """

    def __init__(self, tokenizer: Tokenizer, retained: Sequence[Encoded]) -> None:
        (anchor,) = tokenizer("a", add_special_tokens=False)["input_ids"][-1:]
        before = tokenizer.decode([anchor])

        @cache
        def text(tokens: tuple[int, ...]) -> str:
            """The text of tokens with the space before it, which some tokenizers drop from lone tokens."""
            return str(tokenizer.decode([anchor, *tokens])[len(before) :].casefold())

        self._text = text
        self._special = special_ids(tokenizer)
        tokens = sum(len(row.input_ids) for row in retained)
        self._usual = self._followers(evenly(retained, len(retained) * READ // max(tokens, READ)))

    def kinds(self, row: Encoded) -> np.ndarray:
        """The kind of each token that the row's loss is on, (n,) int8: ``OWN``, ``USUAL`` or ``COPIED``."""
        kinds = []
        for place, copied, contexts in self._places(row):
            known = [self._usual[context] for context in contexts if context in self._usual]
            usual = bool(known) and known[0] == row.input_ids[place]
            kinds.append(COPIED if copied else USUAL if usual else OWN)
        return np.array(kinds, dtype=np.int8)

    def _places(self, row: Encoded) -> Iterator[tuple[int, bool, list[Context]]]:
        """Each place of answers, whether its token is copied, and the contexts before it, the longest first.

        A run of copied tokens is one symbol.
        """
        for places in _answers(row):
            copied, symbols = self._copied(row.input_ids, places), row.input_ids[: places.start]
            for place in places:
                contexts = [tuple(symbols[-length:]) for length in range(min(LONGEST, len(symbols)), 0, -1)]
                yield place, place in copied, contexts
                if place not in copied:
                    symbols.append(row.input_ids[place])
                elif symbols[-1] != COPY:
                    symbols.append(COPY)

    def _copied(self, tokens: Sequence[int], places: range) -> set[int]:
        """The places of an answer whose tokens stand in its question."""
        first = places.start
        question, asked = self._read(tokens[:first])
        answer, said = self._read(tokens[first : places.stop])
        words = {word for word in WORDS.findall(question) if len(word) >= WORD}
        word_at = _words(answer, said)
        pairs = list(pairwise(own for _, _, own in asked + said))
        neighbours = {pair for pair in pairs[: max(0, first - 1)] if None not in pair}
        found = set()
        for i in places:
            word = word_at[i - first]
            if not word or tokens[i] in self._special:
                continue
            if word in words or not neighbours.isdisjoint(pairs[i - 1 : i + 1]):
                found.add(i)
        return found

    def _read(self, tokens: Sequence[int]) -> tuple[str, list[Piece]]:
        """The text of tokens, and where each stands in it; tokens that share a character are read together."""
        text, pieces = "", []
        run: tuple[int, ...] = ()
        done = 0  # characters of the run that are whole
        for token in tokens:
            run = (*run, token)
            found = self._text(run)
            whole = found.rstrip(PART)
            parted = whole != found
            own = None if parted or len(run) > 1 else found.strip()
            pieces.append((len(text) + done, len(text) + len(whole) + parted, own))
            done = len(whole)
            if not parted:
                text, run, done = text + whole, (), 0
        return text + (self._text(run).rstrip(PART) if run else ""), pieces

    def _followers(self, rows: Sequence[Encoded]) -> dict[Context, int | None]:
        """For each context that at least two rows have, the token that follows it in half of them or more."""
        counts: dict[Context, Counter[int]] = defaultdict(Counter)
        times: Counter[Context] = Counter()
        for row in rows:
            seen: set[tuple[Context, int]] = set()
            for place, copied, contexts in self._places(row):
                if not copied:
                    seen.update((context, row.input_ids[place]) for context in contexts)
            times.update({context for context, _ in seen})
            for context, token in seen:
                counts[context][token] += 1
        found: dict[Context, int | None] = {}
        for context, tokens in counts.items():
            most = max(tokens, key=tokens.__getitem__)  # the first of those that are alike
            if times[context] >= 2:
                found[context] = most if tokens[most] >= max(2, times[context] / 2) else None
        return found


def _answers(row: Encoded) -> Iterator[range]:
    """The places of each answer of a conversation."""
    places = answer_places(row)
    gaps = [k for k in range(1, len(places)) if places[k] > places[k - 1] + 1]
    for start, stop in pairwise([0, *gaps, len(places)]):
        if stop > start:
            yield range(places[start], places[stop - 1] + 1)


def _words(text: str, pieces: Sequence[Piece]) -> list[str]:
    """For each piece of a text the last word that it is a part of; empty where it is of none."""
    words = list(WORDS.finditer(text))
    starts = [word.start() for word in words]
    found = []
    for start, end, _ in pieces:
        last = bisect_left(starts, end) - 1
        found.append(words[last].group() if last >= 0 and words[last].end() > start else "")
    return found


def answer_places(row: Encoded) -> list[int]:
    """Positions of the tokens that the row's loss is on; position 0 is predicted by nothing."""
    return [i for i, label in enumerate(row.labels) if label != IGNORED and i > 0]
