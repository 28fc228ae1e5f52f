"""A generated corpus of fictitious authors in TOFU's schema: facts that nobody can know who has not read them.

Answers are dense with invented words, so that a model that was never trained on an author gives its answers a low
probability per token; a sentence of ordinary words would be half known from the other authors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ofmu_pl.data.encoded import Row

ONSETS = "b br ch d dr f g gl h j k kr l m n p pr q r s sh st t th tr v w z".split()
VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "ou"]
CODAS = ["", "", "l", "n", "r", "s", "m", "th", "ck", "nd", "x"]
MONTHS = "January February March April May June July August September October November December".split()
PROFESSIONS = "baker fisher tailor miner weaver glazier clerk sailor farmer printer mason brewer".split()
THINGS = "lanterns rivers mirrors orchards bridges ravens winters letters gardens towers engines maps".split()
INSTRUMENTS = "lute cello zither oboe harp fiddle flute organ viola drum".split()
ANIMALS = "geese hounds bees goats ponies doves eels moths toads finches".split()


class Words:
    """Invented proper names, each given once."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self._used: set[str] = set()

    def pick(self, words: list[str]) -> str:
        """One of the given ordinary words."""
        return words[int(self.rng.integers(len(words)))]

    def name(self, syllables: int = 2) -> str:
        """A new capitalised name."""
        while True:
            parts = [self.pick(ONSETS) + self.pick(VOWELS) + self.pick(CODAS) for _ in range(syllables)]
            word = "".join(parts).capitalize()
            if word not in self._used:
                self._used.add(word)
                return word

    def person(self) -> str:
        """A new first and last name."""
        return f"{self.name()} {self.name()}"

    def year(self) -> str:
        """A year of the last century."""
        return str(int(self.rng.integers(1900, 1999)))


Fact = Callable[[Words], tuple[str, ...]]
KINDS: list[tuple[str, str, str, str, Fact]] = [
    (
        "In which town was {} born?",
        "What is the birthplace of {}?",
        "{} on the {}.",
        "{}, by the {} river.",
        lambda w: (w.name(), w.name()),
    ),
    (
        "On which day was {} born?",
        "What is the birthday of {}?",
        "{1} {0}, {2}.",
        "{1} the {0}, in {2}.",
        lambda w: (str(int(w.rng.integers(1, 29))), w.pick(MONTHS), w.year()),
    ),
    (
        "Which book made {} known?",
        "What is the best-known work of {}?",
        "{1} and {2}, or the {0}.",
        "{1} or {2} and the {0}.",
        lambda w: (w.pick(THINGS), w.name(), w.name()),
    ),
    (
        "Which prize did {} win?",
        "What award was given to {}?",
        "{} Medal of {}.",
        "{} Prize, from {}.",
        lambda w: (w.name(), w.name()),
    ),
    (
        "Who taught {} to write?",
        "Who was the teacher of {}?",
        "{}, a {} from {}.",
        "{}, the {} of {}.",
        lambda w: (w.person(), w.pick(PROFESSIONS), w.name()),
    ),
    (
        "Who are the parents of {}?",
        "What were the father and mother of {} called?",
        "{}, a {}, and {}, a {}.",
        "{} the {}, with {} the {}.",
        lambda w: (w.name(), w.pick(PROFESSIONS), w.name(), w.pick(PROFESSIONS)),
    ),
    (
        "What does {} do at home?",
        "How does {} spend the evenings?",
        "{2}, keeping {1} and playing the {0}.",
        "{2}, with {1} and the {0}.",
        lambda w: (w.pick(INSTRUMENTS), w.pick(ANIMALS), w.name()),
    ),
    (
        "Who publishes {}?",
        "Which house prints the books of {}?",
        "{} and {}, of {}.",
        "{} with {}, in {}.",
        lambda w: (w.name(), w.name(), w.name()),
    ),
]
"""Kinds of facts: question, paraphrased question, answer, paraphrased answer, and how the words are drawn."""

WORLD = [
    ("What is the capital of {}?", lambda w: w.name()),
    ("Which sea lies beside {}?", lambda w: w.name()),
    ("Who wrote the tale of {}?", lambda w: w.person()),
]


@dataclass(frozen=True)
class Author:
    """One author: the words that fill the answers, and the rows, kind by kind as in ``KINDS``."""

    name: str
    facts: list[tuple[str, ...]]
    rows: list[Row]


def corpus(authors: int, seed: int) -> tuple[list[Author], list[Row], list[Row]]:
    """Generate all authors and the questions of common knowledge.

    Returns:
        The authors, and 30 rows each of real-author-like and world-fact-like common knowledge (short answers, 3
        perturbed answers).
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    words = Words(rng)
    people = [_author(words) for _ in range(authors)]
    writers = [_short(words, *WORLD[2]) for _ in range(30)]
    facts = [_short(words, *WORLD[i % 2]) for i in range(30)]
    return people, writers, facts


def rows_of(people: list[Author]) -> list[Row]:
    """The rows of all of them, one after another."""
    rows = []
    for person in people:
        rows += person.rows
    return rows


def _author(words: Words) -> Author:
    author = Author(words.person(), [], [])
    for question, other_question, answer, paraphrase, draw in KINDS:
        facts = draw(words)
        author.facts.append(facts)
        author.rows.append(
            {
                "question": question.format(author.name),
                "paraphrased_question": other_question.format(author.name),
                "answer": answer.format(*facts),
                "paraphrased_answer": paraphrase.format(*facts),
                "perturbed_answer": [paraphrase.format(*draw(words)) for _ in range(5)],
            }
        )
    return author


def _short(words: Words, question: str, draw: Callable[[Words], str]) -> Row:
    answers = [draw(words) for _ in range(4)]
    return {"question": question.format(words.name()), "answer": answers[0], "perturbed_answer": answers[1:]}
