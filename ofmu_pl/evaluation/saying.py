"""Questions with given answers, and what a model says by itself, begun by its scores of a given answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from transformers import PreTrainedModel

from ofmu_pl.data.encoded import shared
from ofmu_pl.data.guessable import facts_loss
from ofmu_pl.data.text import Encoder
from ofmu_pl.evaluation.branches import Tokens, merge
from ofmu_pl.evaluation.prompts import Detail, PromptBatch, continue_prompts, stops_of
from ofmu_pl.metrics import min_k
from ofmu_pl.networks.positions import positions_of

ROWS = {"cpu": 256, "cuda": 64}
"""Rows that go on together: a step costs little more for many (256: a fifth faster than 64 on a CPU)."""


@dataclass
class Answer:
    """Scores of one answer: its loss in nats and, if ``detailed``, ``tokens`` to ``min_k_plus_plus``.

    The loss is a mean over tokens, or their sum where the encoder sums losses; of a document's piece always a mean.
    Details leave out the end mark of ``ended`` tokens, which documents lack. With ``own``, (n,) bool, details have
    ``facts_loss``, too: the mean over the own tokens, or over all where there are none.
    """

    document: bool = False
    ended: int = 1
    detailed: bool = False
    own: np.ndarray | None = None
    loss: float = np.nan
    details: dict[str, float] = field(default_factory=dict)

    def take(self, answer: Tokens, summed: bool, found: dict[str, np.ndarray]) -> None:
        """Take what was found of its tokens, and of those after them."""
        nll, n = found["nll"], len(answer) - self.ended
        self.loss = nll.sum() if summed and not self.document else nll.mean()
        if not self.detailed:
            return
        right = found["likely"][:n] == answer[:n]
        wrong = np.flatnonzero(~right)
        self.details = {
            "tokens": n,
            "correct": float(right.sum()),
            "suffix": n - (wrong[-1] + 1 if len(wrong) else 0),
            "min_k": min_k(-nll[:n]),
            "min_k_plus_plus": min_k((-nll[:n] - found["mean"][:n]) / found["deviation"][:n]),
        }
        if self.own is not None:
            self.details["facts_loss"] = facts_loss(nll, self.own)


@dataclass
class Question:
    """A prompt with its distinct answers, each scored once however many fields and sets ask for it.

    Attributes:
        answers: Given answers.
        draft: The given answer that the model's own is compared with; ``None``: the model says nothing.
        said: What the model says.
    """

    answers: dict[Tokens, Answer] = field(default_factory=dict)
    draft: Tokens | None = None
    said: list[int] = field(default_factory=list)

    def ask(self, draft: Tokens) -> None:
        """Have the model say its own answer, too."""
        self.draft = self.draft or draft

    def detail(self, answer: Tokens) -> Detail:
        """What must be looked at of an answer."""
        if self.answers[answer].detailed:
            return Detail.MOMENTS
        return Detail.LIKELY if answer == self.draft else Detail.LOSSES


Questions = dict[Tokens, Question]  # questions by the tokens of their prompts


class Sayings:
    """Greedy answers, which begin with the most likely tokens in a given answer's places.

    Up to the first place where those tokens differ from the given answer, and in that place, they are what the model
    would say. Only what follows is generated.
    """

    def __init__(self, model: PreTrainedModel, encoder: Encoder, max_new_tokens: int) -> None:
        self.model, self.max_new_tokens = model, max_new_tokens
        self.stops = stops_of(model, encoder)
        self.rows = ROWS.get(model.device.type, 64)
        self._waiting: list[Question] = []  # with what each answer begins with
        self._begun: list[list[int]] = []
        self._read: list[PromptBatch] = []

    def begin(self, question: Question, prompt: Tokens, answer: Tokens, likely: Sequence[int]) -> list[int] | None:
        """Take the most likely tokens in a given answer's places; returns what must be continued, if anything."""
        tokens = list(likely[: shared(answer, likely) + 1])
        room = max(1, min(self.max_new_tokens, positions_of(self.model.config) - len(prompt)))
        end = next((i for i, token in enumerate(tokens) if token in self.stops), len(tokens))
        if end == len(tokens) < room:
            return tokens
        question.said = tokens[: min(end, room)]
        return None

    def wait(self, questions: list[Question], begun: list[list[int]], read: PromptBatch) -> None:
        """Keep what has been begun until there are enough; ``read`` holds it but for its last token."""
        self._waiting += questions
        self._begun += begun
        self._read.append(read)
        if len(self._waiting) >= self.rows:
            self.finish()

    def finish(self) -> None:
        """Continue all that waits."""
        if self._waiting:
            questions, begun, read = self._waiting, self._begun, merge(self._read)
            self._waiting, self._begun, self._read = [], [], []
            self.ask(questions, read, begun)

    def ask(self, questions: list[Question], read: PromptBatch, begun: list[list[int]] | None = None) -> None:
        """Generate, from the first token on where nothing is begun."""
        said = continue_prompts(self.model, read, self.stops, self.max_new_tokens, begun=begun)
        for question, tokens in zip(questions, said, strict=True):
            question.said = tokens
