"""Has a causal language model read prompts once, and continue them by given answers or by its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from ofmu_pl.data.text import Encoder
from ofmu_pl.evaluation.columns import Cache, begin, filled, go_on, make_roomy
from ofmu_pl.losses import IGNORED
from ofmu_pl.networks.positions import positions_of

CHUNK_ELEMENTS = {"cpu": 2**20, "cuda": 2**24}
"""Logits that are scored at a time, in float32 (4 and 64 MiB): several tensors as large stand beside them."""


@dataclass
class PromptBatch:
    """B prompts, with all but their last tokens already in the model's cache.

    Attributes:
        cache: Keys and values of P - 1 columns, padded on the left, or what stands in their place (``columns``).
        mask: 1 where a column may be attended to, (B, P); the last column is the last token's.
        last: The last token, (B,).
        position: Position of the last token, (B,).
    """

    cache: Cache
    mask: Tensor
    last: Tensor
    position: Tensor

    def rows(self, index: Tensor) -> PromptBatch:
        """Select prompts, each any number of times, with a cache of their own."""
        cache = copy(self.cache)
        cache.layers = [copy(layer) for layer in self.cache.layers]  # selecting makes new tensors
        cache.batch_select_indices(index)
        return PromptBatch(cache, self.mask[index], self.last[index], self.position[index])


def read_prompts(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], hidden: int | None = None, skip_hidden: bool = False
) -> PromptBatch:
    """Run a model over prompts, none of them empty, once.

    Nothing attends to a ``hidden`` token (open-unlearning hides every pad token, real or not). With ``skip_hidden``
    positions count only tokens that are not hidden, as in ``model.generate``.
    """
    width = max(len(p) for p in prompts)
    device = model.device
    ids = torch.tensor([[0] * (width - len(p)) + [*p] for p in prompts], device=device)
    real = torch.arange(width, device=device) >= width - torch.tensor([[len(p)] for p in prompts], device=device)
    mask = real.long() if hidden is None else (real & (ids != hidden)).long()
    positions = ((mask if skip_hidden else real.long()).cumsum(1) - 1).clamp(min=0)
    cache = begin(model, ids[:, :-1], mask[:, :-1], positions[:, :-1])
    return PromptBatch(cache, mask, ids[:, -1], positions[:, -1])


DETAILS = ("nll", "likely", "mean", "deviation")


def score_answers(
    model: PreTrainedModel, prompts: PromptBatch, answers: Sequence[Sequence[int]], detailed: bool = False
) -> dict[str, Tensor]:
    """Score one answer per prompt; logits exist for answer tokens only. The cache then holds them.

    Returns:
        By name of B given answers of at most S tokens, (B, S):

        * ``nll``: minus the log-probability of each token, nats; 0 on padding;
        * ``likely``, if it is ``detailed``, as what follows: number of the most likely token in each one's place;
        * ``mean``: mean log-probability under the model's own distribution at each token;
        * ``deviation``: its standard deviation, of variance 1e-6 at least.
    """
    width = max(map(len, answers))
    labels = torch.tensor([[*x] + [IGNORED] * (width - len(x)) for x in answers], device=model.device)
    real = labels != IGNORED
    # The last prompt token predicts the first that follows; nothing needs the last one's prediction.
    ids = torch.cat([prompts.last[:, None], labels[:, :-1].clamp(min=0)], dim=1)
    mask = torch.cat([prompts.mask, real[:, :-1].long()], dim=1)
    last = real.sum(1, keepdim=True) - 1  # padding must not pass the model's positions
    positions = prompts.position[:, None] + torch.arange(width, device=model.device).minimum(last)
    said = go_on(model, prompts.cache, ids, mask, positions, keep=width)
    look = _details if detailed else partial(F.cross_entropy, reduction="none")
    found = said.values(partial(_in_parts, look), labels)
    return dict(zip(DETAILS, found.unbind(2), strict=True)) if detailed else {"nll": found}


def _in_parts(function: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> Tensor:
    """A function of logits, (n, V), and labels, (n,), which are (n, 1, V) and (n, 1), in parts that a cache holds."""
    step = max(1, CHUNK_ELEMENTS.get(logits.device.type, 2**24) // logits.shape[2])
    parts = zip(logits[:, 0].split(step), labels[:, 0].split(step), strict=True)
    return torch.cat([function(x if x.dtype == torch.float64 else x.float(), y) for x, y in parts])


def _details(logits: Tensor, labels: Tensor) -> Tensor:
    """The values of ``DETAILS``, (n, 4)."""
    log_p = logits.log_softmax(dim=1)
    nll = F.nll_loss(log_p, labels, reduction="none")
    p = log_p.exp()
    mean = (p * log_p).sum(1)
    variance = (p * log_p.square()).sum(1) - mean.square()
    return torch.stack([nll, logits.argmax(dim=1).to(nll.dtype), mean, variance.clamp(min=1e-6).sqrt()], dim=1)


def stops_of(model: PreTrainedModel, encoder: Encoder) -> list[int]:
    """Tokens that end an answer: the encoder's (``Encoder.stops``), and those of the model's way to generate."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    return sorted({*encoder.stops, *(ends if isinstance(ends, list) else [ends])} - {None})


def most_likely(logits: Tensor) -> Tensor:
    """The most likely token of each row, (B,), by logits (B, V)."""
    return logits.argmax(dim=-1)


def continue_prompts(
    model: PreTrainedModel,
    prompts: PromptBatch,
    stops: Sequence[int],
    max_new_tokens: int,
    choose: Callable[[Tensor], Tensor] = most_likely,
) -> list[list[int]]:
    """Generate tokens after each prompt, without the end token.

    A row that has ended leaves the batch and the cache: answers differ in length, and this halves the time of
    ``model.generate``, which carries every row to the end of the longest.

    Args:
        model: The model that read the prompts.
        prompts: B prompts, whose cache is spent.
        stops: Tokens that end an answer.
        max_new_tokens: Largest number of tokens of an answer; it is smaller where the model's positions end.
        choose: Chooses the next tokens, (B,), by the logits of the rows that go on, (B, V).
    """
    ends = set(stops)
    ids, mask, positions, cache = prompts.last[:, None], prompts.mask, prompts.position[:, None], prompts.cache
    make_roomy(cache)
    answers: list[list[int]] = [[] for _ in range(len(ids))]
    room = (positions_of(model.config) - 1 - prompts.position).clamp(max=max_new_tokens).tolist()
    running = list(range(len(ids)))
    while running:
        logits = go_on(model, cache, ids, mask, positions, keep=1).logits()[:, -1]
        order = torch.tensor(running, device=ids.device).argsort()  # a rule that draws does so by the prompts' order
        tokens = torch.empty_like(order).scatter_(0, order, choose(logits[order]))
        going = []
        for k, (row, token) in enumerate(zip(running, tokens.tolist(), strict=True)):
            if token not in ends:
                answers[row].append(token)
                if len(answers[row]) < room[row]:
                    going.append(k)
        if not going:
            break
        if len(going) < len(running):
            going = filled(going)
            index = torch.tensor(going, device=ids.device)
            cache.batch_select_indices(index)
            running = [running[k] for k in going]
            tokens, mask, positions = tokens[index], mask[index], positions[index]
        ids, positions = tokens[:, None], positions + 1
        mask = torch.cat([mask, mask.new_ones(len(running), 1)], dim=1)
    return answers
