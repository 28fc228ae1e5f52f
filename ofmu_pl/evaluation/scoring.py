"""Scores a causal language model on evaluation sets: losses of given answers, and answers of its own."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ofmu_pl.data.encoded import Encoded, Row, wrong_answers_of
from ofmu_pl.data.guessable import OWN
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text import Encoder
from ofmu_pl.evaluation.branches import Tokens
from ofmu_pl.evaluation.questions import Answer, Question, Questions, answer_questions
from ofmu_pl.metrics import Scores, SetScores
from ofmu_pl.metrics.rouge import rouge_l_f1, rouge_l_recall, rouge_l_recall_of_words
from ofmu_pl.metrics.scores import broken_items
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.sets import is_document, prefix_of

DETAILED = ("forget", "forget_paraphrased", "holdout")
"""Sets whose answers are also looked at token by token (memorisation, membership attacks)."""

Kinds = Callable[[Encoded], np.ndarray]
"""Tells the kind of each token that a row's loss is on, (n,) int8 (``data.guessable``)."""
Key = tuple[Tokens, Tokens]
"""Tokens of a prompt, and of an answer to it."""


def score_rows(
    model: Any,
    encoder: Encoder,
    sets: dict[str, list[Row]],
    *,
    max_new_tokens: int | None,
    items: int | None = None,
    hidden: int | None = None,
    thorough: bool = False,
    kinds: Kinds | None = None,
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
        kinds: Tells which tokens are an answer's own; ``None``: there is no ``facts_loss``.
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
        how = {"document": document, "detailed": name in detailed, "generate": name in asked}
        encoded = encoder.encode_rows([rows[i] for i in ids[name]])
        keys[name] = [_ask(questions, encoder, x, **how) for x in encoded]
        # The facts of documents are the attacks' alone, and these need documents to compare with.
        if kinds is not None and name in detailed and (not document or "holdout_doc" in sets):
            for x, ((prompt, answer), *_) in zip(encoded, keys[name], strict=True):
                questions[prompt].answers[answer].own = kinds(x[0]) == OWN
    with _inference(model):
        answer_questions(model, encoder, questions, max_new_tokens, hidden, progress)
    decode = _decoder(encoder)
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
    prompts: dict[str, list[Tokens]] = {}
    drafts: dict[Tokens, Tokens] = {}
    for name, s in scores.items():
        if s.rouge is not None:
            encoded = [x[0] for x in encoder.encode_rows([sets[name][i] for i in s.ids])]
            prompts[name] = [tuple(x.input_ids[: x.prompt_length]) for x in encoded]
            answers = [tuple(x.input_ids[x.prompt_length :]) for x in encoded]
            drafts = dict(zip(prompts[name], answers, strict=True)) | drafts
    questions = {p: Question({drafts[p]: Answer()}, draft=drafts[p]) for p in list(drafts)[rank::world]}
    with _inference(model):
        answer_questions(model, encoder, questions, max_new_tokens, hidden, progress)
    decode = _decoder(encoder)
    said = {prompt: decode(question.said).strip() for prompt, question in questions.items()}
    if world > 1:
        shares: list[Any] = [None] * world
        dist.all_gather_object(shares, said)
        said = {prompt: text for share in shares for prompt, text in share.items()}
    for name, asked in prompts.items():
        scores[name].generations = np.array([said[prompt] for prompt in asked], dtype=object)


def _ask(
    questions: Questions,
    encoder: Encoder,
    encoded: Sequence[Encoded],
    *,
    document: bool,
    detailed: bool,
    generate: bool,
) -> list[Key]:
    """Enter a row's answers under their prompts; returns where to find each afterwards."""
    keys = []
    for x in encoded:
        keys.append((tuple(x.input_ids[: x.prompt_length]), tuple(x.input_ids[x.prompt_length :])))
        answers = questions.setdefault(keys[-1][0], Question()).answers
        answers.setdefault(keys[-1][1], Answer(document, 0 if document else encoder.ends(x.input_ids)))
    first = questions[keys[0][0]]
    if detailed:
        first.detailed.add(keys[0][1])
    if generate and first.draft is None:
        first.draft = keys[0][1]
    return keys


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
        said = [questions[prompt].said for prompt, _ in firsts]
        answers, texts = [row["answer"] for row in rows], [decode(tokens).strip() for tokens in said]
        scores.generations = np.array(texts, dtype=object)
        counted = texts
        if rows and "counts" in rows[0]:
            counted = [_counted(decode, *pair) for pair in zip(said, rows, strict=True)]
            scores.rouge_f1 = rouge_l_f1(answers, counted)
            scores.rouge_words = rouge_l_recall_of_words(answers, counted)
        scores.rouge = rouge_l_recall(answers, counted)
        pairs = zip(answers, texts, strict=True)
        scores.exact = np.array([_plain(answer) == _plain(text) for answer, text in pairs], dtype=np.float64)
    if detailed and rows:
        found = [questions[prompt].answers[answer].details for prompt, answer in firsts]
        for key in found[0]:
            setattr(scores, key, np.array([details[key] for details in found], dtype=np.float64))
        texts = [row["answer"] if "answer" in row else decode(row["tokens"]) for row in rows]
        scores.zlib_bytes = np.array([len(zlib.compress(text.encode())) for text in texts], dtype=np.float64)
    return scores


def _plain(text: str) -> str:
    """A text in small letters, composed: what a tokenizer composes may have been written in parts."""
    return unicodedata.normalize("NFC", text).strip().lower()


def _counted(decode: Callable[[list[int]], str], said: list[int], row: Row) -> str:
    """What of a generation counts, where the row says so: its first tokens, up to certain texts."""
    text = decode(said[: row["counts"]["tokens"]])
    for end in row["counts"]["before"]:
        text = text.split(end)[0]
    return text


def _decoder(encoder: Encoder) -> Callable[[list[int]], str]:
    return partial(encoder.tokenizer.decode, skip_special_tokens=True)


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
