"""Which results are of the same code: one number, in the key of everything that is kept, and in provenance."""

from __future__ import annotations

import hashlib
import json
from typing import Any

RESULTS_VERSION = 5
"""Add 1 in every commit after which the same inputs give other numbers.

That is every change of a value in ``core``, ``losses``, ``modules`` (a method's step, its default settings), ``data``
(splits, batches, prompts, tokens, the generated corpora), ``networks`` (how rows are scored, how models are built),
``metrics`` or ``experiments`` (how a setting is chosen), and every change of what the kept files hold. A refactoring,
a message or a faster way to the same numbers leaves it as it is. Whatever was kept under another number is made again.
"""


def key_of(facts: Any) -> str:
    """The name of what follows from ``facts`` and this version of the code: 32 hexadecimal digits.

    Args:
        facts: What JSON can hold; the order of its keys does not matter.
    """
    words = json.dumps([RESULTS_VERSION, facts], sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:32]
