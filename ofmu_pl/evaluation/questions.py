"""Asks a causal language model questions: losses of given answers, and answers of its own, each prompt read once."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from ofmu_pl.data.guessable import facts_loss
from ofmu_pl.data.text import Encoder
from ofmu_pl.evaluation.prompts import PromptBatch, continue_prompts, read_prompts, score_answers, stops_of
from ofmu_pl.metrics import min_k

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 8192}
"""Tokens per batch: on a CPU a batch that fits the cache is fastest (a fifth faster than 4096), on a GPU a large
one."""
PROMPTS_PER_CHUNK = {"cpu": 128, "cuda": 64}
"""Most prompts in the cache at a time, from among which answers of like length come together."""
COST_OF_CALL = {"cpu": 32, "cuda": 8192}
"""What a call of the model costs by itself, in tokens: batches are as many as make this and the padding least."""

Tokens = tuple[int, ...]


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
        generates: Whether the model says its own answer, too.
        said: What the model says.
    """

    answers: dict[Tokens, Answer] = field(default_factory=dict)
    generates: bool = False
    said: list[int] = field(default_factory=list)


Questions = dict[Tokens, Question]  # questions by the tokens of their prompts


class _Task(NamedTuple):
    """A given answer to the question of a row."""

    row: int
    tokens: Tokens
    answer: Answer


def answer_questions(
    model: PreTrainedModel,
    encoder: Encoder,
    questions: Questions,
    max_new_tokens: int | None,
    hidden: int | None = None,
    progress: bool = False,
) -> None:
    """Fill in what a model in eval mode says, without gradients, with prompts of like length together.

    Without ``max_new_tokens`` nothing is generated; ``hidden`` is that of ``read_prompts``.
    """
    order, stops = sorted(questions, key=len), stops_of(model, encoder)
    bar = tqdm(total=len(order), desc="scoring", unit="question", leave=False, disable=not progress)
    most, call = PROMPTS_PER_CHUNK.get(model.device.type, 64), 32 * COST_OF_CALL.get(model.device.type, 8192)
    for part in like_lengths([len(p) for p in order], most, sys.maxsize, call):
        prompts = order[part]
        asked, read = [questions[prompt] for prompt in prompts], read_prompts(model, prompts, hidden)
        _score(model, read, asked, encoder.sums_losses)
        speaking = [row for row, question in enumerate(asked) if question.generates]
        if max_new_tokens is not None and speaking:
            # Where tokens are hidden, what is generated has other positions than what is scored.
            if hidden is not None and any(hidden in prompt for prompt in prompts):
                read = read_prompts(model, prompts, hidden, skip_hidden=True)
            rows = read.rows(torch.tensor(speaking, device=model.device))
            for row, said in zip(speaking, continue_prompts(model, rows, stops, max_new_tokens), strict=True):
                asked[row].said = said
            del rows
        del read  # so that memory has one chunk's cache at a time
        bar.update(len(prompts))
    bar.close()


def _score(model: PreTrainedModel, read: PromptBatch, asked: Sequence[Question], summed: bool) -> None:
    """Score the given answers to questions whose prompts have been read."""
    tasks = []
    for row, question in enumerate(asked):
        tasks += [_Task(row, tokens, answer) for tokens, answer in question.answers.items()]
    for batch in _batches(tasks, model.device.type):
        prompts = read.rows(torch.tensor([task.row for task in batch], device=model.device))
        scored = score_answers(model, prompts, [task.tokens for task in batch], batch[0].answer.detailed)
        arrays = {name: x.double().cpu().numpy() for name, x in scored.items()}
        for b, task in enumerate(batch):
            found = {name: x[b, : len(task.tokens)] for name, x in arrays.items()}
            task.answer.take(task.tokens, summed, found)


def _batches(tasks: Sequence[_Task], device: str) -> Iterator[list[_Task]]:
    """Batches of like length, looked at alike, under a budget of tokens."""
    budget, call = TOKENS_PER_BATCH.get(device, 8192), COST_OF_CALL.get(device, 8192)
    ordered = sorted(tasks, key=lambda task: (task.answer.detailed, len(task.tokens)))
    for _, group in groupby(ordered, key=lambda task: task.answer.detailed):
        alike = list(group)
        for part in like_lengths([len(task.tokens) for task in alike], len(alike), budget, call):
            yield alike[part]


def like_lengths(lengths: Sequence[int], rows: int, tokens: int, call: int) -> list[slice]:
    """Cut rows that are sorted by length into batches at the least cost; each row is padded to its batch's longest.

    A batch has at most so many rows, and tokens with its padding (a longer row is alone); it costs ``call`` tokens by
    itself.

    >>> like_lengths([2, 2, 3, 9, 9], rows=9, tokens=99, call=3)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    costs, begins = [0], [0]  # of the first rows alone: the least cost, and where the last batch begins
    for end, length in enumerate(lengths, 1):
        most = max(1, min(rows, tokens // max(1, length)))
        first = max(0, end - most)
        choices = [costs[begin] + (end - begin) * length for begin in range(first, end)]
        costs.append(min(choices) + call)
        begins.append(first + choices.index(costs[-1] - call))
    batches, end = [], len(lengths)
    while end:
        batches.append(slice(begins[end], end))
        end = begins[end]
    return batches[::-1]
