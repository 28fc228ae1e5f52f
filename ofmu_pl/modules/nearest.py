"""The questions that are most like one: those that share the most pairs of neighbouring tokens with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np


class Nearest:
    """Finds like questions by Jaccard's index of their sets of bigrams, the share of all bigrams that both have.

    Names differ from question to question and wordings return, so questions are alike that ask for the same of others.

    Args:
        questions: Tokens of each question.

    Example:
        >>> nearest = Nearest([[1, 2, 3, 9], [1, 2, 8, 7], [5, 6]])
        >>> nearest([1, 2, 3, 4], most=2).tolist()
        [0, 1]
    """

    def __init__(self, questions: Sequence[Sequence[int]]) -> None:
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        sizes = []
        for i, question in enumerate(questions):
            bigrams = set(pairwise(question))
            sizes.append(len(bigrams))
            for bigram in bigrams:
                found[bigram].append(i)
        self._having = {bigram: np.array(rows) for bigram, rows in found.items()}
        self._sizes = np.array(sizes)

    def __call__(self, question: Sequence[int], most: int) -> np.ndarray:
        """Numbers of the most like questions, the likest first, of equals the first; at most ``most`` of them."""
        bigrams = set(pairwise(question))
        both = np.zeros(len(self._sizes))
        for bigram in bigrams & self._having.keys():
            both[self._having[bigram]] += 1
        either = len(bigrams) + self._sizes - both
        return np.argsort(-both / np.maximum(either, 1), kind="stable")[:most]
