"""The version of results, which changes with the numbers; it is in the key of everything kept and in provenance."""

import hashlib
import json

RESULTS_VERSION = 22
"""Add 1 in every commit after which the same inputs give other numbers.

That is every change of a value in ``core``, ``losses``, ``modules`` (a method's step, its default settings), ``data``
(splits, batches, prompts, tokens and their kinds, the generated corpora), ``networks`` (how models are built),
``evaluation`` (how rows are scored), ``metrics`` or ``benchmark`` (how a setting is chosen), and every change of the
contents of kept files. A refactoring, a message or a faster way to the same numbers leaves it as it is. Results kept
under another number are made again.
"""


def key_of(facts: object) -> str:
    """The name of what follows from ``facts`` and this version of the code: 32 hexadecimal digits.

    Args:
        facts: Facts that JSON can hold; the order of keys does not matter.
    """
    words = json.dumps([RESULTS_VERSION, facts], sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:32]
