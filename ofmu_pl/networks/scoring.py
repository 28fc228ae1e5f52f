"""What a causal language model says: losses of given answers, and answers of its own. Feeds ``metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import DynamicCache

from ofmu_pl.data.text import ChatEncoder, Encoded, Row, collate
from ofmu_pl.errors import UserError
from ofmu_pl.metrics import Scores, SetScores, rouge_l_recall
from ofmu_pl.networks.language import answer_nll

Progress = Callable[[Sequence[Any], str], Iterator[Any]]
TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 8192}
"""On a CPU a batch that fits the cache is fastest (a fifth faster than 4096); a GPU wants large ones."""
ROWS_PER_GENERATION = 64


@contextmanager
def inference(model: Any) -> Iterator[None]:
    """Eval mode and no gradients meanwhile."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def answer_losses(model: Any, encoded: Sequence[Encoded], progress: Progress | None = None) -> np.ndarray:
    """Mean negative log-likelihood of each answer, its end token included.

    Batches hold rows of like length under a budget of tokens.

    Args:
        model: A Hugging Face causal language model.
        encoded: N conversations.
        progress: Wraps the batches, to show a bar.

    Returns:
        (N,) float64, nats a token.
    """
    budget = TOKENS_PER_BATCH.get(model.device.type, 8192)
    batches: list[list[int]] = []
    for i in sorted(range(len(encoded)), key=lambda i: len(encoded[i].input_ids)):
        if not batches or (len(batches[-1]) + 1) * len(encoded[i].input_ids) > budget:
            batches.append([])
        batches[-1].append(i)
    losses = np.empty(len(encoded))
    with inference(model):
        for index in progress(batches, "answers") if progress else batches:
            batch = collate([encoded[i] for i in index], index, pad_id=0)
            batch = {k: v.to(model.device) for k, v in batch.items()}
            losses[index] = answer_nll(model, batch).double().cpu().numpy()
    return losses


def generate_answers(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], max_new_tokens: int, progress: Progress | None = None
) -> list[str]:
    """Greedy continuations up to an end token, as stripped text, in the order of ``prompts``.

    Args:
        model: A Hugging Face causal language model; its end tokens are the tokenizer's and its generation config's.
        tokenizer: Decodes.
        prompts: Token ids, no padding.
        max_new_tokens: Most tokens of an answer.
        progress: Wraps the batches, to show a bar.
    """
    ends = getattr(model.generation_config, "eos_token_id", None)
    stops = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    batches = [order[i : i + ROWS_PER_GENERATION] for i in range(0, len(order), ROWS_PER_GENERATION)]
    answers = [""] * len(prompts)
    with inference(model):
        for index in progress(batches, "generations") if progress else batches:
            texts = _greedy(model, [prompts[i] for i in index], sorted(stops), max_new_tokens)
            for i, tokens in zip(index, texts, strict=True):
                answers[i] = tokenizer.decode(tokens, skip_special_tokens=True).strip()
    return answers


def _greedy(model: Any, prompts: Sequence[list[int]], stops: list[int], max_new_tokens: int) -> list[list[int]]:
    """Most likely tokens after each prompt, without the end token.

    A row that has ended leaves the batch and the cache: answers differ in length, and this halves the time of
    ``model.generate``, which carries every row to the end of the longest.
    """
    width = max(len(p) for p in prompts)
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    ends = torch.tensor(stops, device=model.device)
    cache = DynamicCache(config=model.config)
    answers: list[list[int]] = [[] for _ in prompts]
    running = list(range(len(prompts)))
    for _ in range(max_new_tokens):
        logits = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        tokens = logits[:, -1].argmax(dim=-1)
        alive = (~torch.isin(tokens, ends)).nonzero()[:, 0]
        if len(alive) < len(running):
            cache.batch_select_indices(alive)
            running = [running[i] for i in alive.tolist()]
            tokens, mask, positions = tokens[alive], mask[alive], positions[alive]
        if not running:
            break
        for row, token in zip(running, tokens.tolist(), strict=True):
            answers[row].append(token)
        ids, positions = tokens[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(running), 1)], dim=1)
    return answers


def score_rows(
    model: Any,
    encoder: ChatEncoder,
    sets: dict[str, list[Row]],
    *,
    max_new_tokens: int | None,
    items: int | None = None,
    progress: bool = False,
) -> tuple[Scores, dict[str, list[str]]]:
    """Score a model on evaluation sets.

    Args:
        model: A Hugging Face causal language model.
        encoder: Makes tokens of rows.
        sets: Rows by evaluation set.
        max_new_tokens: Length of generations; ``None``: generate nothing, so no ROUGE.
        items: Evenly spaced rows of each set at most; ``None``: all.
        progress: Show progress bars.

    Returns:
        Scores by set, and the generations by set (of the scored rows, in order).

    Raises:
        UserError: Rows of a set differ in the number of perturbed answers.
    """
    show: Progress | None = (lambda x, what: iter(tqdm(x, desc=what, leave=False))) if progress else None
    ids = {name: np.arange(len(rows)) for name, rows in sets.items()}
    if items is not None:
        ids = {name: x[:: max(1, -(-len(x) // items))] for name, x in ids.items()}
    chosen = {name: [sets[name][i] for i in x] for name, x in ids.items()}

    # Every answer of every row in one pass, so that batches of like length are large.
    pairs: list[tuple[str, str]] = []
    for name, rows in chosen.items():
        if len({len(_wrong(row)) for row in rows}) > 1:
            raise UserError(
                f"Rows of the evaluation set '{name}' differ in the number of perturbed answers: give each row the "
                "same number of them in perturbed_answer, or remove the field from all."
            )
        pairs += [(row["question"], answer) for row in rows for answer in _answers(row)]
    losses = iter(answer_losses(model, [encoder.encode(q, a) for q, a in pairs], show))

    scores: Scores = {}
    generations: dict[str, list[str]] = {}
    for name, rows in chosen.items():
        table = [[next(losses) for _ in _answers(row)] for row in rows]
        wrong = [x[len(x) - len(_wrong(row)) :] for x, row in zip(table, rows, strict=True)]
        right = [x[: len(x) - len(_wrong(row))] for x, row in zip(table, rows, strict=True)]
        scores[name] = SetScores(
            ids[name],
            np.array([x[0] for x in right]),
            np.array([x[-1] for x in right]) if any(len(x) > 1 for x in right) else None,
            np.array(wrong) if any(wrong) else None,
        )
    if max_new_tokens is not None:
        prompts = [encoder.prompt(row["question"]) for rows in chosen.values() for row in rows]
        texts = iter(generate_answers(model, encoder.tokenizer, prompts, max_new_tokens, show))
        for name, rows in chosen.items():
            generations[name] = [next(texts) for _ in rows]
            scores[name].rouge = rouge_l_recall([row["answer"] for row in rows], generations[name])
    return scores, generations


def _answers(row: Row) -> list[str]:
    """Answer, paraphrase if there is one, perturbed answers."""
    paraphrase = row.get("paraphrased_answer")
    return [row["answer"], *([] if paraphrase is None else [paraphrase]), *_wrong(row)]


def _wrong(row: Row) -> list[str]:
    return row.get("perturbed_answer") or []
