"""What a causal language model says: losses of given answers, and answers of its own. Feeds ``metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from ofmu_pl.data.text import ChatEncoder, Encoded, Row, collate
from ofmu_pl.losses import IGNORED, causal_lm_nll
from ofmu_pl.metrics import Scores, SetScores, rouge_l_recall

Progress = Callable[[Sequence[Any], str], Iterator[Any]]
TOKENS_PER_BATCH = 4096
ROWS_PER_GENERATION = 64


@contextmanager
def inference(model: Any) -> Iterator[None]:
    """Eval mode, key-value cache on and no gradients meanwhile."""
    training, use_cache = model.training, model.config.use_cache
    model.eval()
    model.config.use_cache = True
    try:
        with torch.inference_mode():
            yield
    finally:
        model.config.use_cache = use_cache
        model.train(training)


def answer_losses(model: Any, encoded: Sequence[Encoded], progress: Progress | None = None) -> np.ndarray:
    """Mean negative log-likelihood of each answer, its end token included.

    Batches hold rows of like length under a budget of tokens; logits are made from the first answer token on only.

    Args:
        model: A Hugging Face causal language model.
        encoded: N conversations.
        progress: Wraps the batches, to show a bar.

    Returns:
        (N,) float64, nats a token.
    """
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i].input_ids))
    batches: list[list[int]] = [[]]
    for i in order:
        if (len(batches[-1]) + 1) * len(encoded[i].input_ids) > TOKENS_PER_BATCH and batches[-1]:
            batches.append([])
        batches[-1].append(i)
    losses = np.empty(len(encoded))
    with inference(model):
        for index in progress(batches, "answers") if progress else batches:
            batch = collate([encoded[i] for i in index], index, pad_id=0)
            batch = {k: v.to(model.device) for k, v in batch.items()}
            first = int((batch["labels"] != IGNORED).int().argmax(dim=1).min())
            keep = batch["labels"].shape[1] - first + 1
            logits = model(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                logits_to_keep=keep,
                use_cache=False,
            ).logits
            losses[index] = causal_lm_nll(logits, batch["labels"][:, -keep:]).double().cpu().numpy()
    return losses


def generate_answers(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], max_new_tokens: int, progress: Progress | None = None
) -> list[str]:
    """Greedy continuations up to the end token, as stripped text, in the order of ``prompts``."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    batches = [order[i : i + ROWS_PER_GENERATION] for i in range(0, len(order), ROWS_PER_GENERATION)]
    answers = [""] * len(prompts)
    with inference(model):
        for index in progress(batches, "generations") if progress else batches:
            width = max(len(prompts[i]) for i in index)
            ids = torch.full((len(index), width), tokenizer.pad_token_id)
            mask = torch.zeros_like(ids)
            for row, i in enumerate(index):
                ids[row, width - len(prompts[i]) :] = torch.tensor(prompts[i])
                mask[row, width - len(prompts[i]) :] = 1
            output = model.generate(
                input_ids=ids.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=max_new_tokens,
                do_sample=False,
                temperature=None,
                top_p=None,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
            texts = tokenizer.batch_decode(output[:, width:], skip_special_tokens=True)
            for i, text in zip(index, texts, strict=True):
                answers[i] = text.strip()
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
    """
    show: Progress | None = (lambda x, what: iter(tqdm(x, desc=what, leave=False))) if progress else None
    ids = {name: np.arange(len(rows)) for name, rows in sets.items()}
    if items is not None:
        ids = {name: x[:: max(1, -(-len(x) // items))] for name, x in ids.items()}
    chosen = {name: [sets[name][i] for i in x] for name, x in ids.items()}

    # Every answer of every row in one pass, so that batches of like length are large.
    pairs: list[tuple[str, str]] = []
    for rows in chosen.values():
        for row in rows:
            answers = [row["answer"], *_optional(row, "paraphrased_answer"), *row.get("perturbed_answer", [])]
            pairs += [(row["question"], answer) for answer in answers]
    losses = iter(answer_losses(model, [encoder.encode(q, a) for q, a in pairs], show))

    scores: Scores = {}
    generations: dict[str, list[str]] = {}
    for name, rows in chosen.items():
        answer, paraphrase, wrong = [], [], []
        for row in rows:
            answer.append(next(losses))
            paraphrase += [next(losses) for _ in _optional(row, "paraphrased_answer")]
            wrong.append([next(losses) for _ in row.get("perturbed_answer", [])])
        scores[name] = SetScores(
            ids[name],
            np.array(answer),
            np.array(paraphrase) if len(paraphrase) == len(rows) else None,
            np.array(wrong) if wrong and wrong[0] else None,
        )
    if max_new_tokens is not None:
        prompts = [encoder.prompt(row["question"]) for rows in chosen.values() for row in rows]
        texts = iter(generate_answers(model, encoder.tokenizer, prompts, max_new_tokens, show))
        for name, rows in chosen.items():
            generations[name] = [next(texts) for _ in rows]
            scores[name].rouge = rouge_l_recall([row["answer"] for row in rows], generations[name])
    return scores, generations


def _optional(row: Row, field: str) -> list[str]:
    value = row.get(field)
    return [] if value is None else [value]
