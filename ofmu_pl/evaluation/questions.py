"""Asks a causal language model questions: losses of given answers, and answers of its own, each token read once.

The model reads the beginning of all prompts once, then the rest of each prompt. Of a question's answers it then reads
a trunk and those that begin unlike it, and last the others from where they branch off. Its own answer begins with the
tokens that its scores of the true answer tell already (``saying``).
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from ofmu_pl.data.encoded import shared
from ofmu_pl.data.text import Encoder
from ofmu_pl.evaluation.branches import Tokens, branch, can_branch, merge, read_after, read_common, trunk_of
from ofmu_pl.evaluation.prompts import Detail, PromptBatch, read_prompts, score_answers
from ofmu_pl.evaluation.saying import Question, Questions, Sayings

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 8192}
"""Tokens per batch: on a CPU a batch that fits the cache is fastest (a fifth faster than 4096), on a GPU a large
one."""
PROMPTS_PER_CHUNK = {"cpu": 128, "cuda": 64}
"""Most prompts in the cache at a time, from among which answers of like length come together."""
COST_OF_CALL = {"cpu": 32, "cuda": 8192}
"""What a call of the model costs by itself, in tokens: batches are as many as make this and the padding least."""


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
    sayings = None if max_new_tokens is None else Sayings(model, encoder, max_new_tokens)
    order = sorted(questions, key=len)
    bar = tqdm(total=len(order), desc="scoring", unit="question", leave=False, disable=not progress)
    most, call = PROMPTS_PER_CHUNK.get(model.device.type, 64), 32 * COST_OF_CALL.get(model.device.type, 8192)
    common = read_common(model, order) if hidden is None else None
    for part in like_lengths([len(p) for p in order], most, sys.maxsize, call):
        chunk = _Chunk(model, {prompt: questions[prompt] for prompt in order[part]}, sayings, hidden, common)
        chunk.score(encoder.sums_losses)
        bar.update(len(order[part]))
    if sayings is not None:
        sayings.finish()
    bar.close()


class _Task(NamedTuple):
    """An answer to score, but for the first ``known`` tokens, which it shares with the trunk that it branches off."""

    row: int
    answer: Tokens
    trunk: Tokens
    known: int
    detail: Detail

    @property
    def left(self) -> Tokens:
        """Tokens that must be read."""
        return self.answer[self.known :]


def _tasks(row: int, question: Question, branches: bool) -> list[_Task]:
    """The answers to a question; of those that begin alike, one is the trunk that the others branch off."""
    answers = list(question.answers)
    if not answers:
        return []
    trunk, known = trunk_of(answers), dict.fromkeys(answers, 0)
    if branches:
        known |= {answer: min(shared(answer, trunk), len(answer) - 1) for answer in answers if answer != trunk}
    details = {answer: question.detail(answer) for answer in answers}
    # The trunk is looked at for those that share its first tokens, too.
    details[trunk] = max(details[answer] for answer in answers if answer == trunk or known[answer])
    return [_Task(row, answer, trunk, known[answer], details[answer]) for answer in answers]


def _batches(tasks: Sequence[_Task], device: str) -> Iterator[list[_Task]]:
    """Batches of like length, looked at alike, under a budget of tokens."""
    budget, call = TOKENS_PER_BATCH.get(device, 8192), COST_OF_CALL.get(device, 8192)
    ordered = sorted(tasks, key=lambda task: (task.detail, len(task.left)))
    for _, group in groupby(ordered, key=lambda task: task.detail):
        alike = list(group)
        for part in like_lengths([len(task.left) for task in alike], len(alike), budget, call):
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


class _Chunk:
    """Questions whose prompts are in the cache together."""

    def __init__(
        self,
        model: PreTrainedModel,
        asked: Questions,
        sayings: Sayings | None,
        hidden: int | None,
        common: PromptBatch | None,
    ) -> None:
        self.model, self.prompts, self.asked = model, list(asked), list(asked.values())
        self.sayings, self.hidden = sayings, hidden
        prompts = self.prompts
        self.read = read_after(model, common, prompts) if common else read_prompts(model, prompts, hidden)
        longest = max(max(map(len, question.answers), default=0) for question in self.asked)
        self.branches = can_branch(self.read.cache, self.read.mask.shape[1] + longest)
        # Where tokens are hidden, what is generated has other positions than what is scored, see read_prompts.
        self.apart = hidden is not None and any(hidden in prompt for prompt in self.prompts)
        self.drafted = self.branches and not self.apart  # scores say how the model's own answers begin
        self.trunks: dict[int, dict[str, np.ndarray]] = {}

    def score(self, summed: bool) -> None:
        """Score trunks and answers that share nothing with them, then the branches; and have the model give its own."""
        whole: list[_Task] = []
        branches: list[_Task] = []
        for row, question in enumerate(self.asked):
            for task in _tasks(row, question, self.branches):
                (branches if task.known else whole).append(task)
        parting, device = {task.row for task in branches}, self.model.device
        rows: list[int] = []
        parts = []
        for batch in _batches(whole, device.type):
            read = self.read.rows(torch.tensor([task.row for task in batch], device=device))
            self._score_batch(read, batch, summed)
            kept = [b for b, task in enumerate(batch) if task.row in parting and task.answer == task.trunk]
            if kept:
                trunks = [batch[b].trunk for b in kept]
                rows += [batch[b].row for b in kept]
                parts.append(branch(read, kept, [len(x) for x in trunks], [x[-1] for x in trunks]))
        if branches:
            place, read = {row: k for k, row in enumerate(rows)}, merge(parts)
            for batch in _batches(branches, device.type):
                depths = [task.known - len(task.trunk) for task in batch]
                last = [task.answer[task.known - 1] for task in batch]
                cut = branch(read, [place[task.row] for task in batch], depths, last)
                self._score_batch(cut, batch, summed)
        asked = [row for row, question in enumerate(self.asked) if question.draft is not None]
        if self.sayings is not None and not self.drafted and asked:
            read = self.read
            if self.apart:
                read = read_prompts(self.model, self.prompts, self.hidden, skip_hidden=True)
            self.sayings.ask([self.asked[row] for row in asked], read.rows(torch.tensor(asked, device=device)))

    def _score_batch(self, read: PromptBatch, batch: Sequence[_Task], summed: bool) -> None:
        """Score what follows the prompts, and begin what the model says where that is a draft."""
        scored = score_answers(self.model, read, [task.left for task in batch], batch[0].detail)
        arrays = {name: x.double().cpu().numpy() for name, x in vars(scored).items() if x is not None}
        begun: dict[int, list[int]] = {}
        for b, task in enumerate(batch):
            question, prompt = self.asked[task.row], self.prompts[task.row]
            tokens = self._tokens(task, {name: x[b, : len(task.left)] for name, x in arrays.items()})
            question.answers[task.answer].take(task.answer, summed, tokens)
            if task.answer == question.draft and self.drafted and self.sayings is not None:
                likely = tokens["likely"].astype(int).tolist()
                said = self.sayings.begin(question, prompt, task.answer, likely)
                if said is not None:
                    begun[b] = said
        if begun and self.sayings is not None:
            depths = [len(said) - batch[b].known for b, said in begun.items()]
            cut = branch(read, list(begun), depths, [said[-1] for said in begun.values()])
            self.sayings.wait([self.asked[batch[b].row] for b in begun], list(begun.values()), cut)

    def _tokens(self, task: _Task, read: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Findings for all tokens of an answer: the trunk's for shared ones, then the new ones; a trunk's are kept."""
        if task.known:
            trunk = self.trunks[task.row]
            return {name: np.concatenate([trunk[name][: task.known], x]) for name, x in read.items()}
        if task.answer == task.trunk:
            self.trunks[task.row] = read
        return read
