r"""An interpolated n-gram model of answers, which knows answers to like questions and copies from the question at hand.

    q(t | x) = lambda_0 / V + sum_k lambda_k s(x_k, t) + sum_k mu_k s_n(x_k, t) + lambda_q s_q((), t) + mu_q s_q(x_1, t)

s(x, t) is the share of t among the tokens that follow x: in all known answers (s, k = 0 to 3), in those to the 20
questions that are most like this one (s_n, k = 0 to 2), and in this question (s_q). x_k are the last k tokens. The
weights are fitted to other answers by expectation maximisation (Jelinek and Mercer, 1980), separately for each number
of parts of each kind that a place has. The part that copies from the text at hand is a cache (Kuhn and De Mori, 1990).
Twenty questions and two tokens were chosen by the likelihood of held-out rows.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

LONGEST = 3
"""Tokens of the longest context in all known answers."""
LIKE, LONGEST_OF_LIKE = 20, 2
"""Number of like questions, and tokens of the longest context in their answers."""
ROUNDS = 15
"""Rounds of expectation maximisation; the weights of rare kinds of place are still on their way from equal ones."""
PRIOR = 0.1
"""Tokens that each part is taken to have explained before any was seen, so that no weight becomes 0."""

Shares = dict[int, float]
"""Probabilities of some tokens."""
Kind = tuple[int, int, int]
"""How many of a place's contexts all answers have, answers to like questions have, and its question has."""


class Reply(NamedTuple):
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

    def at(self, numbers: Tensor) -> "Sparse":
        """Those of some places, by number."""
        new = torch.full((len(self.everywhere),), -1).index_copy(0, numbers, torch.arange(len(numbers)))[self.places]
        named = new >= 0
        return Sparse(self.everywhere[numbers], new[named], self.tokens[named], self.shares[named])


def joined(parts: Sequence[Sparse]) -> Sparse:
    """All places of some, one after the other."""
    first = torch.tensor([len(part.everywhere) for part in parts]).cumsum(0).roll(1)
    first[0] = 0
    moved = [part._replace(places=part.places + int(n)) for part, n in zip(parts, first, strict=True)]
    return Sparse(*map(torch.cat, zip(*moved, strict=True)))


class Nearest:
    """Finds like questions by Jaccard's index of their sets of bigrams of tokens, the share of all that both have.

    Names differ from question to question and wordings return, so questions are alike that ask for the same of others.

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


class NGram:
    """An interpolated n-gram model of answers, with a cache of the question.

    Args:
        known: Answers that are counted, with their questions.
        held: Answers, not among these, that the weights are fitted to.
        vocabulary: Number V of tokens.

    Example:
        >>> known = [Reply([0, 5, 6, 7], 1, [1, 2, 3]), Reply([0, 5, 6, 8], 1, [1, 2, 3])]
        >>> model = NGram(known, held=[Reply([0, 5, 6, 7], 1, [1, 2, 3])], vocabulary=10)
        >>> model.dense(model.sparse(Reply([0, 5, 6, 9], 1, [3]))).argmax().item() in (7, 8)
        True
    """

    def __init__(self, known: Iterable[Reply], held: Iterable[Reply], vocabulary: int) -> None:
        self.vocabulary, self._known = vocabulary, list(known)
        self._nearest = Nearest([answer.tokens[: answer.question] for answer in self._known])
        self._shares = _followers(self._known, LONGEST)
        anywhere = self._shares.get((), {})
        self._anywhere = torch.zeros(vocabulary)
        self._anywhere[list(anywhere)] = torch.tensor(list(anywhere.values()))
        self.weights: dict[Kind, np.ndarray] = {}
        self._fit(held)

    def sparse(self, answer: Reply) -> Sparse:
        """Probabilities of the next token at each of an answer's places, as far as they differ from place to place."""
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
        where, what = torch.tensor([places, tokens], dtype=torch.long)
        return Sparse(torch.tensor(everywhere), where, what, torch.tensor(shares))

    def dense(self, sparse: Sparse, device: torch.device | str = "cpu") -> Tensor:
        """Probabilities of all tokens at each place, (n, V) float32, made on a device: V numbers are slow to move."""
        everywhere, places, tokens, shares = (x.to(device) for x in sparse)
        uniform, anywhere = everywhere.T
        predicted: Tensor = uniform[:, None] / self.vocabulary + anywhere[:, None] * self._anywhere.to(device)
        return predicted.index_put_((places, tokens), shares, accumulate=True)

    def of(self, tokens: Sequence[int], sparse: Sparse) -> Tensor:
        """Probability of one token at each place, (n,) float32: what ``dense`` has there, without the other tokens."""
        wanted = torch.tensor(tokens)
        uniform, anywhere = sparse.everywhere.T
        predicted: Tensor = uniform / self.vocabulary + anywhere * self._anywhere[wanted]
        named = sparse.tokens == wanted[sparse.places]
        return predicted.index_put_((sparse.places[named],), sparse.shares[named], accumulate=True)

    def _fit(self, held: Iterable[Reply]) -> None:
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

    def _parts(self, answer: Reply) -> Iterator[tuple[int, Kind, list[Shares]]]:
        """For each place its token, its kind, and its parts but the uniform one, the context of no token first."""
        tokens = answer.tokens
        question = tokens[: answer.question]
        like = _followers([self._known[i] for i in self._nearest(question, LIKE)], LONGEST_OF_LIKE)
        asked = _followers([Reply(question, 0, range(len(question)))], 1)
        for i in answer.places:
            contexts = [tuple(tokens[i - k : i]) for k in range(min(LONGEST, i) + 1)]
            everywhere = [self._shares[c] for c in contexts if c in self._shares]
            near = [like[c] for c in contexts if c in like]
            copied = [asked[c] for c in contexts[:2] if c in asked]
            yield tokens[i], (len(everywhere), len(near), len(copied)), [*everywhere, *near, *copied]


def _followers(answers: Iterable[Reply], longest: int) -> dict[tuple[int, ...], Shares]:
    """For each context of at most ``longest`` tokens the shares of the tokens that follow it."""
    counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for tokens, _, places in answers:
        for i in places:
            for k in range(min(longest, i) + 1):
                counts[tuple(tokens[i - k : i])][tokens[i]] += 1
    return {context: _shares(found) for context, found in counts.items()}


def _shares(found: Counter[int]) -> Shares:
    total = found.total()
    return {token: n / total for token, n in found.items()}
