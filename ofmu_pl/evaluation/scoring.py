"""Scores a causal language model on evaluation sets: losses of given answers, and answers of its own."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from tqdm.auto import tqdm

from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text import Encoded, Encoder, Row, wrong_answers_of
from ofmu_pl.evaluation.prompts import Prompts, continue_greedily, read_prompts, score_answers, stops_of
from ofmu_pl.metrics import Scores, SetScores, min_k, rouge_l_recall
from ofmu_pl.metrics.scores import broken_items
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.sets import is_document, prefix_of

TOKENS_PER_BATCH = {"cpu": 1024, "cuda": 8192}
"""Tokens per batch: on a CPU a batch that fits the cache is fastest (a fifth faster than 4096), on a GPU a large
one."""
PROMPTS_PER_CHUNK = {"cpu": 256, "cuda": 64}
"""Prompts in the cache at a time: their continuations run together (256: a fifth faster than 64 on a CPU)."""
DETAILED = ("forget", "forget_paraphrased", "holdout")
"""Sets whose answers are also looked at token by token (memorisation, membership attacks)."""


@dataclass
class Answer:
    """Scores of one answer: its loss in nats per token and, with details, ``tokens`` to ``min_k_plus_plus``.

    The loss of a piece of a document is always a mean. Details leave the end token out, where there is one
    (``ended``): a document has none.
    """

    document: bool = False
    ended: bool = True
    loss: float = np.nan
    details: dict[str, float] = field(default_factory=dict)


@dataclass
class Question:
    """A prompt with its distinct answers, each scored once however many fields and sets ask for it."""

    answers: dict[tuple[int, ...], Answer] = field(default_factory=dict)
    detailed: set[tuple[int, ...]] = field(default_factory=set)
    generate: bool = False
    generation: str = ""


Key = tuple[tuple[int, ...], tuple[int, ...]]
"""Tokens of a prompt, and of an answer to it."""
Questions = dict[tuple[int, ...], Question]


def score_rows(
    model: Any,
    encoder: Encoder,
    sets: dict[str, list[Row]],
    *,
    max_new_tokens: int | None,
    items: int | None = None,
    hidden: int | None = None,
    thorough: bool = False,
    progress: bool = False,
) -> Scores:
    """Score a model on evaluation sets in one pass; each of several ranks takes a share, and all get every score.

    Args:
        model: A Hugging Face causal language model.
        encoder: Turns rows into tokens.
        sets: Rows by evaluation set (``support.sets.SETS``, probes and ``holdout``).
        max_new_tokens: Length of generations; ``None``: nothing is generated, so there is no ROUGE.
        items: Number of evenly spaced rows of each set, or all where there are fewer; ``None``: all.
        hidden: A token of prompts that nothing may attend to (see ``read_prompts``).
        thorough: Look at every set token by token, and ask for answers to all of them.
        progress: Show a progress bar.

    Raises:
        UserError: Rows of a set differ in the number of perturbed answers, or a loss is not finite.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    ids = {name: np.arange(len(rows)) for name, rows in sets.items()}
    if items is not None:
        ids = {name: np.array(evenly(range(len(x)), items), dtype=np.int64) for name, x in ids.items()}
    ids = {name: x[rank::world] for name, x in ids.items()}
    detailed = [name for name in sets if thorough or name in DETAILED or is_document(name)]
    asked = [name for name in sets if not is_document(name) and (thorough or prefix_of(name) is not None)]
    asked = [] if max_new_tokens is None else asked
    questions: Questions = {}
    keys: dict[str, list[list[Key]]] = {}
    for name, rows in sets.items():
        if len({len(wrong_answers_of(row)) for row in rows}) > 1:
            raise UserError(
                f"Rows of the evaluation set '{name}' differ in the number of perturbed answers: give each row the "
                "same number of them in perturbed_answer, or remove the field from all."
            )
        document = is_document(name)
        ended = encoder.ends_answers and not document
        how = {"document": document, "ended": ended, "detailed": name in detailed, "generate": name in asked}
        keys[name] = [_ask(questions, encoder.encode_row(rows[i]), **how) for i in ids[name]]
    with _inference(model):
        _run(model, encoder, questions, max_new_tokens, hidden, progress)
    decode = partial(encoder.tokenizer.decode, skip_special_tokens=True)
    scores = {
        name: _collect(questions, keys[name], x, [sets[name][i] for i in x], name in detailed, name in asked, decode)
        for name, x in ids.items()
    }
    if world > 1:
        shares: list[Any] = [None] * world
        dist.all_gather_object(shares, scores)
        scores = {name: SetScores.merge([share[name] for share in shares]) for name in sets}
    broken = broken_items(scores)
    if broken:
        counts = ", ".join(f"{n} of {len(scores[name].ids)} in {name}" for name, n in broken.items())
        raise UserError(
            f"The model's losses are not finite ({counts}): its weights are broken, or overflow in {model.dtype}, so "
            "give a sound checkpoint or float32 weights."
        )
    return scores


def add_generations(
    model: Any,
    encoder: Encoder,
    sets: dict[str, list[Row]],
    scores: Scores,
    *,
    max_new_tokens: int,
    hidden: int | None = None,
    progress: bool = False,
) -> None:
    """Generate again what the model said when it was scored, into the scores' ``generations``; takes all ranks.

    Args:
        model: The model that ``score_rows`` scored.
        encoder: Turns rows into tokens.
        sets: Rows by evaluation set.
        scores: Scores by evaluation set; those with ``rouge`` are completed in place.
        max_new_tokens: Length of generations.
        hidden: A token of prompts that nothing may attend to.
        progress: Show a progress bar.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    prompts: dict[str, list[tuple[int, ...]]] = {}
    for name, s in scores.items():
        if s.rouge is not None:
            encoded = [encoder.encode_row(sets[name][i])[0] for i in s.ids]
            prompts[name] = [tuple(x.input_ids[: x.prompt_length]) for x in encoded]
    distinct = list(dict.fromkeys(prompt for of_set in prompts.values() for prompt in of_set))
    questions = {prompt: Question(generate=True) for prompt in distinct[rank::world]}
    with _inference(model):
        _run(model, encoder, questions, max_new_tokens, hidden, progress)
    said = {prompt: question.generation for prompt, question in questions.items()}
    if world > 1:
        shares: list[Any] = [None] * world
        dist.all_gather_object(shares, said)
        said = {prompt: text for share in shares for prompt, text in share.items()}
    for name, asked in prompts.items():
        scores[name].generations = np.array([said[prompt] for prompt in asked], dtype=object)


def _ask(
    questions: Questions, encoded: Sequence[Encoded], *, document: bool, ended: bool, detailed: bool, generate: bool
) -> list[Key]:
    """Enter a row's answers under their prompts; returns where to find each afterwards."""
    keys = []
    for x in encoded:
        keys.append((tuple(x.input_ids[: x.prompt_length]), tuple(x.input_ids[x.prompt_length :])))
        answers = questions.setdefault(keys[-1][0], Question()).answers
        answers.setdefault(keys[-1][1], Answer(document, ended))
    first = questions[keys[0][0]]
    if detailed:
        first.detailed.add(keys[0][1])
    first.generate |= generate
    return keys


def _run(
    model: Any,
    encoder: Encoder,
    questions: Questions,
    max_new_tokens: int | None,
    hidden: int | None,
    progress: bool,
) -> None:
    """Fill in what the model says, with prompts of like length together."""
    tokenizer = encoder.tokenizer
    stops = stops_of(model, tokenizer)
    order = sorted(questions, key=len)
    bar = tqdm(total=len(order), desc="scoring", unit="question", leave=False, disable=not progress)
    size = PROMPTS_PER_CHUNK.get(model.device.type, 64)
    for start in range(0, len(order), size):
        chunk = [list(p) for p in order[start : start + size]]
        asked = [questions[tuple(p)] for p in chunk]
        prompts = read_prompts(model, chunk, hidden)
        for details in (False, True):
            wanted = [
                (row, answer)
                for row, question in enumerate(asked)
                for answer in question.answers
                if (answer in question.detailed) is details
            ]
            _score_chunk(model, prompts, asked, wanted, details, encoder.sums_losses)
        talking = [row for row, question in enumerate(asked) if question.generate]
        if talking and max_new_tokens is not None:
            if hidden is not None and any(hidden in p for p in chunk):  # positions differ, see read_prompts
                prompts = read_prompts(model, chunk, hidden, skip_hidden=True)
            prompts = prompts.rows(torch.tensor(talking, device=model.device))
            said = continue_greedily(model, prompts, stops, max_new_tokens)
            for row, tokens in zip(talking, said, strict=True):
                asked[row].generation = tokenizer.decode(tokens, skip_special_tokens=True).strip()
        bar.update(len(chunk))
    bar.close()


def _score_chunk(
    model: Any,
    prompts: Prompts,
    asked: list[Question],
    wanted: list[tuple[int, tuple[int, ...]]],
    details: bool,
    summed: bool,
) -> None:
    """Score answers to prompts that have been read, in batches of like length under a budget of tokens."""
    budget = TOKENS_PER_BATCH.get(model.device.type, 8192)
    batches: list[list[tuple[int, tuple[int, ...]]]] = []
    for pair in sorted(wanted, key=lambda pair: len(pair[1])):
        if not batches or (len(batches[-1]) + 1) * len(pair[1]) > budget:
            batches.append([])
        batches[-1].append(pair)
    for batch in batches:
        rows = torch.tensor([row for row, _ in batch], device=model.device)
        scored = score_answers(model, prompts.rows(rows), [list(answer) for _, answer in batch], details)
        arrays = {name: None if x is None else x.double().cpu().numpy() for name, x in vars(scored).items()}
        for b, (row, answer) in enumerate(batch):
            n = len(answer)
            tokens = {name: x[b, :n] for name, x in arrays.items() if x is not None}
            result = asked[row].answers[answer]
            result.loss = tokens["nll"].sum() if summed and not result.document else tokens["nll"].mean()
            if details:
                end = n - 1 if result.ended else n
                result.details = _details(**{name: x[:end] for name, x in tokens.items()})


def _details(nll: np.ndarray, mean: np.ndarray, deviation: np.ndarray, correct: np.ndarray) -> dict[str, float]:
    """Quantities of ``SetScores`` of one answer, from those of its (n,) tokens."""
    wrong = np.flatnonzero(correct == 0)
    return {
        "tokens": len(nll),
        "correct": correct.sum(),
        "suffix": len(nll) - (wrong[-1] + 1 if len(wrong) else 0),
        "min_k": min_k(-nll),
        "min_k_plus_plus": min_k((-nll - mean) / deviation),
    }


def _collect(
    questions: Questions,
    keys: list[list[Key]],
    ids: np.ndarray,
    rows: Sequence[Row],
    detailed: bool,
    generated: bool,
    decode: Callable[[list[int]], str],
) -> SetScores:
    """Put a set's scores together from those of its answers."""
    table = [[questions[prompt].answers[answer].loss for prompt, answer in row] for row in keys]
    right = [x[: len(x) - len(wrong_answers_of(row))] for x, row in zip(table, rows, strict=True)]
    wrong = [x[len(x) - len(wrong_answers_of(row)) :] for x, row in zip(table, rows, strict=True)]
    scores = SetScores(
        ids,
        np.array([x[0] for x in right], dtype=np.float64),
        np.array([x[-1] for x in right]) if any(len(x) > 1 for x in right) else None,
        np.array(wrong) if any(wrong) else None,
    )
    firsts = [row[0] for row in keys]
    if generated:
        texts = [questions[prompt].generation for prompt, _ in firsts]
        scores.generations = np.array(texts, dtype=object)
        scores.rouge = rouge_l_recall([row["answer"] for row in rows], texts)
        pairs = zip(rows, texts, strict=True)
        scores.exact = np.array(
            [row["answer"].strip().lower() == text.strip().lower() for row, text in pairs], dtype=np.float64
        )
    if detailed and rows:
        found = [questions[prompt].answers[answer].details for prompt, answer in firsts]
        for key in found[0]:
            setattr(scores, key, np.array([details[key] for details in found], dtype=np.float64))
        texts = [row["answer"] if "answer" in row else decode(row["tokens"]) for row in rows]
        scores.zlib_bytes = np.array([len(zlib.compress(text.encode())) for text in texts], dtype=np.float64)
    return scores


@contextmanager
def _inference(model: Any) -> Iterator[None]:
    """A context of eval mode and no gradients."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)
