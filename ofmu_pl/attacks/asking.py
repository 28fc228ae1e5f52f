"""Prompts put to a model, and what it says: the most likely answer, or several that are drawn."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data.encoded import Row
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text import Encoder
from ofmu_pl.data.turns import turns_of
from ofmu_pl.evaluation.prompts import continue_prompts, most_likely, read_prompts, score_answers, stops_of
from ofmu_pl.evaluation.questions import PROMPTS_PER_CHUNK
from ofmu_pl.support.errors import UserError

KNOWN = 0.9
"""Least ROUGE-L recall of an answer that holds its fact: all words where there are fewer than ten, so that an answer's
form alone does not reach it, and of longer ones all but a tenth, such as an article."""


def question_rows(subject: Subject, split: str, most: int | None) -> list[Row]:
    """Evenly spaced rows of a split, a conversation's turns one by one, which are questions or refused."""
    rows = subject.data.splits[split]
    if "question" not in rows[0]:
        raise UserError(
            f"The rows of '{subject.data.name}' are no questions: take attacks that ask none, such as Quantise."
        )
    turns = list(chain.from_iterable(map(turns_of, rows)))
    return list(evenly(turns, most or len(turns)))


def ask(
    model: Any,
    encoder: Encoder,
    prompts: Sequence[list[int]],
    max_new_tokens: int,
    choose: Callable[[Tensor], Tensor] = most_likely,
    times: int = 1,
) -> list[list[str]]:
    """Ask for answers, ``times`` to each prompt, which is read once; ``choose`` is that of ``continue_prompts``."""
    said: list[list[str]] = [[] for _ in prompts]
    stops = stops_of(model, encoder)
    with torch.inference_mode():
        for index in _chunks(model, prompts, times):
            read = read_prompts(model, [prompts[i] for i in index])
            rows = torch.arange(len(index), device=model.device).repeat_interleave(times)
            tokens = continue_prompts(model, read.rows(rows), stops, max_new_tokens, choose)
            texts = [encoder.said(x).strip() for x in tokens]
            for k, i in enumerate(index):
                said[i] = texts[k * times : (k + 1) * times]
    return said


def log_probabilities(model: Any, prompts: Sequence[list[int]], answers: Sequence[list[int]]) -> np.ndarray:
    """Log-probabilities of whole answers, (n,) float64 nats: sums over their tokens."""
    found = np.zeros(len(prompts))
    with torch.inference_mode():
        for index in _chunks(model, prompts, 1):
            read = read_prompts(model, [prompts[i] for i in index])
            nll = score_answers(model, read, [answers[i] for i in index])["nll"]
            found[index] = -nll.double().sum(1).cpu().numpy()
    return found


def drawn(generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    """A choice of tokens as they are likely, for ``ask``; the generator is on the model's device."""
    return lambda logits: torch.multinomial(logits.float().softmax(dim=-1), 1, generator=generator)[:, 0]


def _chunks(model: Any, prompts: Sequence[list[int]], times: int) -> Iterator[list[int]]:
    """Places of prompts of like length, as many as are in the cache at a time."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    size = max(1, PROMPTS_PER_CHUNK.get(model.device.type, 64) // times)
    for start in range(0, len(order), size):
        yield order[start : start + size]
