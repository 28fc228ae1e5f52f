r"""What someone who knows the retain rows alone would answer: an interpolated n-gram model that copies from questions.

    q(t | x) = lambda_0 / V + sum_k lambda_k c(x_k t) / c(x_k) + lambda_q c_q(t) / c_q + lambda_f c_q(x_1 t) / c_q(x_1)

x_k are the last k tokens, k = 0 to 3; c counts in the retain rows' answers, c_q in the question that is answered. The
weights lambda are fitted to never-seen rows by expectation maximisation (Jelinek and Mercer, 1980), separately for each
length of the longest x_k that the retain rows have and for questions with and without x_1; a part that copies from the
text at hand is a cache (Kuhn and De Mori, 1990).

An ascent that makes the true answer unlikely makes answers like it unlikely, too, and so leaves a trace: wrong answers
become less surprising than the right one. A pull towards q leaves neither ahead (docs/methods.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ofmu_pl.data.sampler import evenly
from ofmu_pl.losses import IGNORED

LONGEST = 3
"""Tokens of the longest context."""
ROUNDS = 15
"""Rounds of expectation maximisation; the weights of rare kinds of place are still on their way from equal ones."""
READ = 10_000
"""Rows of a split that are read at most: a table of all contexts of a large corpus would need its size many times."""
PRIOR = 0.1
"""Tokens that each part is taken to have explained before any was seen, so that no weight becomes 0."""

Shares = dict[int, float]
"""Probabilities of some tokens."""
Kind = tuple[int, bool]
"""Length of the longest known context, and whether the question has the last token followed by another."""


class Answer(NamedTuple):
    """A row's tokens and where its answer is.

    Attributes:
        tokens: All tokens.
        question: Number of tokens before the answer's first.
        places: Positions of the answer's tokens, in order, without position 0, which nothing predicts.
    """

    tokens: Sequence[int]
    question: int
    places: Sequence[int]


class Sparse(NamedTuple):
    """Probabilities of the next token at n places.

    Attributes:
        everywhere: Weights of the uniform part and of the context of no token, (n, 2).
        places: Numbers of the places of the m further shares, (m,).
        tokens: Their tokens, (m,).
        shares: The probability that each adds, (m,).
    """

    everywhere: Tensor
    places: Tensor
    tokens: Tensor
    shares: Tensor


class NGram:
    """An interpolated n-gram model of answers, with a cache of the question.

    Args:
        known: Answers that are counted.
        held: Answers, not among these, that the weights are fitted to.
        vocabulary: Number V of tokens.

    Example:
        >>> known = [Answer([0, 5, 6, 7], 1, [1, 2, 3]), Answer([0, 5, 6, 8], 1, [1, 2, 3])]
        >>> model = NGram(known, held=[Answer([0, 5, 6, 7], 1, [1, 2, 3])], vocabulary=10)
        >>> model.predict(Answer([0, 5, 6, 9], 1, [3])).argmax().item() in (7, 8)
        True
    """

    def __init__(self, known: Iterable[Answer], held: Iterable[Answer], vocabulary: int) -> None:
        self.vocabulary = vocabulary
        counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for tokens, _, places in known:
            for i in places:
                for k in range(min(LONGEST, i) + 1):
                    counts[tuple(tokens[i - k : i])][tokens[i]] += 1
        self._shares = {context: _shares(found) for context, found in counts.items()}
        anywhere = self._shares.get((), {})
        self._anywhere = torch.zeros(vocabulary)
        self._anywhere[list(anywhere)] = torch.tensor(list(anywhere.values()))
        self.weights: dict[Kind, np.ndarray] = {}
        self._fit(held)

    def predict(self, answer: Answer) -> Tensor:
        """Probabilities of the next token at each of an answer's places, (n, V) float32."""
        return self.dense(self.sparse(answer))

    def sparse(self, answer: Answer) -> Sparse:
        """What ``predict`` gives, as far as it differs from place to place."""
        everywhere: list[list[float]] = []
        places: list[int] = []
        tokens: list[int] = []
        shares: list[float] = []
        for n, (_, kind, parts) in enumerate(self._parts(answer)):
            weights = self._weights_of(kind, len(parts) + 1).tolist()
            everywhere.append(weights[:2])
            for weight, part in zip(weights[2:], parts[1:], strict=True):
                places += [n] * len(part)
                tokens += part
                shares += [weight * share for share in part.values()]
        return Sparse(torch.tensor(everywhere), torch.tensor(places), torch.tensor(tokens), torch.tensor(shares))

    def dense(self, sparse: Sparse) -> Tensor:
        """Probabilities of all tokens at each place, (n, V) float32."""
        uniform, anywhere = sparse.everywhere.T
        predicted: Tensor = uniform[:, None] / self.vocabulary + anywhere[:, None] * self._anywhere
        predicted.index_put_((sparse.places, sparse.tokens), sparse.shares, accumulate=True)
        return predicted

    def _fit(self, held: Iterable[Answer]) -> None:
        """Find the weights of each kind of place by expectation maximisation."""
        found: dict[Kind, list[list[float]]] = defaultdict(list)
        for answer in held:
            for token, kind, parts in self._parts(answer):
                found[kind].append([1 / self.vocabulary, *(part.get(token, 0.0) for part in parts)])
        for kind, rows in found.items():
            p = np.array(rows)
            weights = self._weights_of(kind, p.shape[1])
            for _ in range(ROUNDS):
                joint = p * weights
                explained = PRIOR + (joint / joint.sum(1, keepdims=True)).sum(0)
                weights = explained / explained.sum()
            self.weights[kind] = weights

    def _weights_of(self, kind: Kind, parts: int) -> np.ndarray:
        """The weights of a kind; equal ones where no held answer has it."""
        return self.weights.get(kind, np.full(parts, 1 / parts))

    def _parts(self, answer: Answer) -> Iterator[tuple[int, Kind, list[Shares]]]:
        """For each place its token, its kind, and its parts but the uniform one, the context of no token first."""
        tokens = answer.tokens
        question = tokens[: answer.question]
        asked = _shares(Counter(question))
        followers: dict[int, Counter[int]] = defaultdict(Counter)
        for token, following in pairwise(question):
            followers[token][following] += 1
        for i in answer.places:
            contexts = (tuple(tokens[i - k : i]) for k in range(min(LONGEST, i) + 1))
            known = [self._shares.get(context, {}) for context in contexts]
            longest = max([k for k, shares in enumerate(known) if shares], default=0)
            follows = followers.get(tokens[i - 1])
            copied = [_shares(follows)] if follows else []
            yield tokens[i], (longest, bool(copied)), [*known[: longest + 1], asked, *copied]


class Guess:
    """What an n-gram model of a data module's retain answers says to forget questions; never-seen rows fit its weights.

    Args:
        data: A ``PairedDataModule`` of text after ``setup``, whose ``never_seen`` names the split of never-seen rows.
        vocabulary: Number V of tokens.

    Attributes:
        model: The n-gram model.
    """

    def __init__(self, data: Any, vocabulary: int) -> None:
        known, held = (
            answers(data, name, evenly(range(len(data.splits[name])), READ)) for name in ("retain", data.never_seen)
        )
        self.model = NGram(known, held, vocabulary)
        self.data = data
        self._said: dict[int, Sparse] = {}

    def log_probabilities(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Guesses at the answers of a batch of forget rows, (b, S, V) float32; 0 where there is no target.

        Args:
            ids: Numbers of the rows, (b,).
            targets: The tokens that are to be predicted, (b, S).
        """
        guessed = torch.zeros(*targets.shape, self.model.vocabulary, device=targets.device)
        for row, i, places in zip(guessed, ids.tolist(), targets != IGNORED, strict=True):
            if i not in self._said:
                (answer,) = answers(self.data, "forget", [i])
                self._said[i] = self.model.sparse(answer)
            row[places] = self.model.dense(self._said[i]).log().to(row)
        return guessed


def answers(data: Any, stream: str, rows: Iterable[int]) -> Iterator[Answer]:
    """The answers of some rows of a split, as the training loss sees them.

    Args:
        data: A ``PairedDataModule`` of text after ``setup``.
        stream: Name of the split.
        rows: Numbers of the rows.
    """
    for i in rows:
        batch = data.collate(stream, [i], 0)
        labelled = (batch["labels"][0] != IGNORED).nonzero().flatten().tolist()
        yield Answer(batch["input_ids"][0].tolist(), labelled[0], [place for place in labelled if place])


def _shares(found: Counter[int]) -> Shares:
    total = found.total()
    return {token: n / total for token, n in found.items()}
