"""A generated corpus of fictitious authors in TOFU's schema: facts that nobody can know who has not read them.

Answers are dense with invented words, so that a model that was never trained on an author gives its answers a low
probability per token; a sentence of ordinary words would be half known from the other authors.

Probes are questions that nobody was trained on, about facts that were: the paper's hard in-scope probes. Each asks for
every fact once, so that it has as many items as the set of its side. Only the question is new; the right and the wrong
answers are those of the fact's own row, so that probabilities and truth ratios can be compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

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

    def __init__(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.Philox(key=seed))
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


QUESTIONS = [
    ("In which town was {} born?", "What is the birthplace of {}?"),
    ("On which day was {} born?", "What is the birthday of {}?"),
    ("Which book made {} known?", "What is the best-known work of {}?"),
    ("Which prize did {} win?", "What award was given to {}?"),
    ("Who taught {} to write?", "Who was the teacher of {}?"),
    ("Who are the parents of {}?", "What were the father and mother of {} called?"),
    ("What does {} do at home?", "How does {} spend the evenings?"),
    ("Who publishes {}?", "Which house prints the books of {}?"),
]
ANSWERS = [
    ("{} on the {}.", "{}, by the {} river."),
    ("{1} {0}, {2}.", "{1} the {0}, in {2}."),
    ("{1} and {2}, or the {0}.", "{1} or {2} and the {0}."),
    ("{} Medal of {}.", "{} Prize, from {}."),
    ("{}, a {} from {}.", "{}, the {} of {}."),
    ("{}, a {}, and {}, a {}.", "{} the {}, with {} the {}."),
    ("{2}, keeping {1} and playing the {0}.", "{2}, with {1} and the {0}."),
    ("{} and {}, of {}.", "{} with {}, in {}."),
]
FACTS: list[Callable[[Words], tuple[str, ...]]] = [
    lambda w: (w.name(), w.name()),
    lambda w: (str(int(w.rng.integers(1, 29))), w.pick(MONTHS), str(int(w.rng.integers(1900, 1999)))),
    lambda w: (w.pick(THINGS), w.name(), w.name()),
    lambda w: (w.name(), w.name()),
    lambda w: (w.person(), w.pick(PROFESSIONS), w.name()),
    lambda w: (w.name(), w.pick(PROFESSIONS), w.name(), w.pick(PROFESSIONS)),
    lambda w: (w.pick(INSTRUMENTS), w.pick(ANIMALS), w.name()),
    lambda w: (w.name(), w.name(), w.name()),
]
"""Kinds of facts: each question and answer with its paraphrase, and how the words of an answer are drawn."""

DESCRIPTIONS = {
    0: "the author born in {0}",
    2: "the author of {1} and {2}",
    3: "the winner of the {0} Medal of {1}",
    4: "the pupil of {0}",
    5: "the child of {0} and {2}",
    6: "the author who spends the evenings with {2}",
    7: "the author whom {0} and {1} publish",
}
"""Phrases that name an author by one fact instead of the name; birthdays are left out: two authors may share one."""

IN_GERMAN_SPANISH_FRENCH = [
    ("In welcher Stadt wurde {} geboren?", "¿En qué ciudad nació {}?", "Dans quelle ville {} est-il né ?"),
    ("An welchem Tag wurde {} geboren?", "¿Qué día nació {}?", "Quel jour {} est-il né ?"),
    ("Welches Buch hat {} bekannt gemacht?", "¿Qué libro dio a conocer a {}?", "Quel livre a fait connaître {} ?"),
    ("Welchen Preis hat {} gewonnen?", "¿Qué premio ganó {}?", "Quel prix {} a-t-il gagné ?"),
    ("Wer hat {} das Schreiben beigebracht?", "¿Quién enseñó a escribir a {}?", "Qui a appris à écrire à {} ?"),
    ("Wer sind die Eltern von {}?", "¿Quiénes son los padres de {}?", "Qui sont les parents de {} ?"),
    ("Was macht {} zu Hause?", "¿Qué hace {} en casa?", "Que fait {} à la maison ?"),
    ("Wer verlegt {}?", "¿Quién publica a {}?", "Qui publie {} ?"),
    ("Antworte auf Englisch.", "Responde en inglés.", "Réponds en anglais."),
]
"""The questions in order, and the request for an English answer (paper, appendix "Hard In-Scope Evaluation": "prompt in
a second language and ask for an English answer")."""
LANGUAGES = dict(zip(("de", "es", "fr"), zip(*IN_GERMAN_SPANISH_FRENCH, strict=True), strict=True))

WORLD = [
    ("What is the capital of {}?", lambda w: w.name()),
    ("Which sea lies beside {}?", lambda w: w.name()),
    ("Who wrote the tale of {}?", lambda w: w.person()),
]


@dataclass(frozen=True)
class Author:
    """One author: the words that fill the answers, and the rows, kind by kind."""

    name: str
    facts: list[tuple[str, ...]]
    rows: list[Row]


def corpus(authors: int, seed: int) -> tuple[list[Author], list[Row], list[Row]]:
    """Generate all authors and the questions of common knowledge.

    Returns:
        The authors, and 30 rows each of real-author-like and world-fact-like common knowledge (short answers, 3
        perturbed answers).
    """
    words = Words(seed)
    people = [_author(words) for _ in range(authors)]
    writers = [_short(words, *WORLD[2]) for _ in range(30)]
    facts = [_short(words, *WORLD[i % 2]) for i in range(30)]
    return people, writers, facts


def rows_of(people: list[Author]) -> list[Row]:
    """The rows of all of them, one after another."""
    return list(chain.from_iterable(person.rows for person in people))


def _author(words: Words) -> Author:
    author = Author(words.person(), [], [])
    for (question, other_question), (answer, paraphrase), draw in zip(QUESTIONS, ANSWERS, FACTS, strict=True):
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


def make_probes(authors: Sequence[Author], forget: Sequence[int], retain: Sequence[int]) -> dict[str, list[Row]]:
    """Rows of ``paraphrase``, ``multi_hop`` and ``cross_lingual``, see ``data.probes`` for their fields.

    * ``paraphrase``: the row's paraphrased question.
    * ``multi_hop``: two facts of one author in one question: one says who is meant, the other is asked for.
    * ``cross_lingual``: in German, Spanish or French, languages taking turns; the answer stays English.
    """
    probes: dict[str, list[Row]] = {"paraphrase": [], "multi_hop": [], "cross_lingual": []}
    for side, i in [("forget", i) for i in forget] + [("retain", i) for i in retain]:
        number, kind = divmod(i, len(QUESTIONS))
        author, row = authors[number], authors[number].rows[kind]
        language = list(LANGUAGES)[(number + kind) % len(LANGUAGES)]  # each language meets every kind
        *questions, request = LANGUAGES[language]
        asked = {
            "paraphrase": {"question": row["paraphrased_question"]},
            "multi_hop": {"question": QUESTIONS[kind][0].format(_described(author, kind))},
            "cross_lingual": {"question": f"{questions[kind].format(author.name)} {request}", "language": language},
        }
        for name, other in asked.items():
            probes[name].append({**row, **other, "side": side})
    return probes


def _described(author: Author, kind: int) -> str:
    """An author by the next kind of fact that fits one author only."""
    others = [*range(kind + 1, len(QUESTIONS)), *range(kind)]
    bridge = next(other for other in others if other in DESCRIPTIONS)
    return DESCRIPTIONS[bridge].format(*author.facts[bridge])
