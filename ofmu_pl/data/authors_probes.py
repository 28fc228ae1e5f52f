"""Questions to the Authors corpus that nobody was trained on, about facts that were: the paper's hard in-scope probes.

Each probe asks for every fact once, so that it has as many items as the set of its side. Only the question is new; the
right and the wrong answers are those of the fact's own row, so that probabilities and truth ratios can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from ofmu_pl.data.authors_corpus import KINDS, Author
from ofmu_pl.data.encoded import Row

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

LANGUAGES: dict[str, tuple[str, ...]] = {
    "de": (
        "In welcher Stadt wurde {} geboren?",
        "An welchem Tag wurde {} geboren?",
        "Welches Buch hat {} bekannt gemacht?",
        "Welchen Preis hat {} gewonnen?",
        "Wer hat {} das Schreiben beigebracht?",
        "Wer sind die Eltern von {}?",
        "Was macht {} zu Hause?",
        "Wer verlegt {}?",
        "Antworte auf Englisch.",
    ),
    "es": (
        "¿En qué ciudad nació {}?",
        "¿Qué día nació {}?",
        "¿Qué libro dio a conocer a {}?",
        "¿Qué premio ganó {}?",
        "¿Quién enseñó a escribir a {}?",
        "¿Quiénes son los padres de {}?",
        "¿Qué hace {} en casa?",
        "¿Quién publica a {}?",
        "Responde en inglés.",
    ),
    "fr": (
        "Dans quelle ville {} est-il né ?",
        "Quel jour {} est-il né ?",
        "Quel livre a fait connaître {} ?",
        "Quel prix {} a-t-il gagné ?",
        "Qui a appris à écrire à {} ?",
        "Qui sont les parents de {} ?",
        "Que fait {} à la maison ?",
        "Qui publie {} ?",
        "Réponds en anglais.",
    ),
}
"""The questions of ``KINDS`` in order, and the request for an English answer (paper, appendix "Hard In-Scope
Evaluation": "prompt in a second language and ask for an English answer")."""


def make_probes(authors: Sequence[Author], forget: Sequence[int], retain: Sequence[int]) -> dict[str, list[Row]]:
    """Rows of ``paraphrase``, ``multi_hop`` and ``cross_lingual``, see ``data.probes`` for their fields.

    * ``paraphrase``: the row's paraphrased question.
    * ``multi_hop``: two facts of one author in one question: one says who is meant, the other is asked for.
    * ``cross_lingual``: in German, Spanish or French, languages taking turns; the answer stays English.
    """
    ask = {"paraphrase": _paraphrase, "multi_hop": _multi_hop, "cross_lingual": _cross_lingual}
    sides = [("forget", i) for i in forget] + [("retain", i) for i in retain]
    probes: dict[str, list[Row]] = {name: [] for name in ask}
    for name, make in ask.items():
        for side, i in sides:
            number, kind = divmod(i, len(KINDS))
            probes[name].append({**authors[number].rows[kind], **make(authors, number, kind), "side": side})
    return probes


def _paraphrase(authors: Sequence[Author], number: int, kind: int) -> Row:
    return {"question": authors[number].rows[kind]["paraphrased_question"]}


def _multi_hop(authors: Sequence[Author], number: int, kind: int) -> Row:
    """The question that names the author by the next kind of fact that fits one author only."""
    bridge = next(k % len(KINDS) for k in range(kind + 1, kind + len(KINDS)) if k % len(KINDS) in DESCRIPTIONS)
    who = DESCRIPTIONS[bridge].format(*authors[number].facts[bridge])
    return {"question": KINDS[kind][0].format(who)}


def _cross_lingual(authors: Sequence[Author], number: int, kind: int) -> Row:
    """The question in a language that shifts by one from author to author, so that each language meets every kind."""
    language = list(LANGUAGES)[(number + kind) % len(LANGUAGES)]
    *questions, request = LANGUAGES[language]
    return {"question": f"{questions[kind].format(authors[number].name)} {request}", "language": language}
