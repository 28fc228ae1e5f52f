"""Prompts put to a model, and what it says: the most likely answer, or several that are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data.encoded import Row
from ofmu_pl.data.text import Encoder
from ofmu_pl.evaluation.prompts import continue_prompts, most_likely, read_prompts, score_answers, stops_of
from ofmu_pl.evaluation.questions import PROMPTS_PER_CHUNK
from ofmu_pl.support.errors import UserError


def question_rows(subject: Subject, split: str, most: int | None) -> list[Row]:
    """Evenly spaced rows of a split.

    Args:
        subject: The model under attack, with its data.
        split: Name of the split.
        most: Most rows; ``None``: all.

    Raises:
        UserError: The rows are no questions.
    """
    rows = [subject.data.splits[split][i] for i in subject.places(split, most)]
    if "question" not in rows[0]:
        raise UserError(
            f"The rows of '{subject.data.name}' are no questions, so there is nothing to ask: take attacks that need "
            "none, for example Relearn or Quantise."
        )
    return rows


def ask(
    model: Any,
    encoder: Encoder,
    prompts: Sequence[list[int]],
    max_new_tokens: int,
    choose: Callable[[Tensor], Tensor] = most_likely,
    times: int = 1,
) -> list[list[str]]:
    """Ask for answers; each prompt is read once, however many are wanted.

    Args:
        model: A Hugging Face causal language model.
        encoder: Knows what ends an answer, and the tokenizer.
        prompts: Tokens of n prompts.
        max_new_tokens: Most tokens of an answer.
        choose: Chooses next tokens by logits, see ``continue_prompts``.
        times: Number of answers to each prompt.

    Returns:
        For each prompt ``times`` answers.
    """
    said: list[list[str]] = [[] for _ in prompts]
    stops = stops_of(model, encoder)
    with torch.inference_mode():
        for index in _chunks(model, prompts, times):
            read = read_prompts(model, [prompts[i] for i in index])
            rows = torch.arange(len(index), device=model.device).repeat_interleave(times)
            tokens = continue_prompts(model, read.rows(rows), stops, max_new_tokens, choose)
            texts = [encoder.tokenizer.decode(x, skip_special_tokens=True).strip() for x in tokens]
            for k, i in enumerate(index):
                said[i] = texts[k * times : (k + 1) * times]
    return said


def log_probabilities(model: Any, prompts: Sequence[list[int]], answers: Sequence[list[int]]) -> np.ndarray:
    """Log-probabilities of whole answers, (n,) float64 nats: sums over their tokens.

    Args:
        model: A Hugging Face causal language model.
        prompts: Tokens of n prompts.
        answers: Tokens of an answer to each.
    """
    found = np.zeros(len(prompts))
    with torch.inference_mode():
        for index in _chunks(model, prompts, 1):
            read = read_prompts(model, [prompts[i] for i in index])
            nll = score_answers(model, read, [answers[i] for i in index]).nll
            found[index] = -nll.double().sum(1).cpu().numpy()
    return found


def drawn(generator: torch.Generator, temperature: float = 1.0, top_p: float = 1.0) -> Callable[[Tensor], Tensor]:
    """A choice of tokens by chance, for ``ask``.

    Args:
        generator: Source of chance, on the model's device.
        temperature: What logits are divided by.
        top_p: Least sum of probabilities of the most likely tokens that are drawn from.

    >>> choose = drawn(torch.Generator().manual_seed(0), top_p=0.5)
    >>> choose(torch.tensor([[0.0, 9.0, 1.0], [3.0, 0.0, 0.0]])).tolist()
    [1, 0]
    """

    def choose(logits: Tensor) -> Tensor:
        p = (logits.float() / temperature).softmax(dim=-1)
        if top_p < 1:
            ordered, order = p.sort(dim=-1, descending=True)
            ordered = ordered.where(ordered.cumsum(dim=-1) - ordered < top_p, 0.0)
            p = torch.zeros_like(p).scatter(1, order, ordered)
        return torch.multinomial(p, 1, generator=generator)[:, 0]

    return choose


def _chunks(model: Any, prompts: Sequence[list[int]], times: int) -> Iterator[list[int]]:
    """Places of prompts of like length, as many as are in the cache at a time."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    size = max(1, PROMPTS_PER_CHUNK.get(model.device.type, 64) // times)
    for start in range(0, len(order), size):
        yield order[start : start + size]
