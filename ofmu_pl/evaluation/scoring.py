"""Scores a causal language model on evaluation sets: losses of given answers, and answers of its own."""

import unicodedata
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np
from transformers import PreTrainedModel

from ofmu_pl.data.encoded import Encoded, Row, wrong_answers_of
from ofmu_pl.data.guessable import OWN
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text import Encoder
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.evaluation.prompts import stops_of
from ofmu_pl.evaluation.questions import Answer, Question, Questions, Tokens, answer_questions
from ofmu_pl.metrics import Scores, SetScores
from ofmu_pl.metrics.fluency import ngram_entropy, repetition
from ofmu_pl.metrics.rouge import rouge_l_f1, rouge_l_recall, rouge_l_recall_of_words
from ofmu_pl.metrics.scores import broken_items, refuse_broken
from ofmu_pl.modules.reference_scores import facts_of
from ofmu_pl.networks.base import evaluating
from ofmu_pl.networks.positions import require_causal
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.kept import cache_folder, content_path, keep, read_shared
from ofmu_pl.support.processes import gathered, is_first, own_share
from ofmu_pl.support.sets import is_document, prefix_of
from ofmu_pl.training.together import one_token, together

DETAILED = ("forget", "forget_paraphrased", "holdout")
"""Sets whose answers are also looked at token by token (memorisation, membership attacks)."""

Kinds = Callable[[Encoded], np.ndarray]
"""Tells the kind of each token that a row's loss is on, (n,) int8 (``data.guessable``)."""


@dataclass
class _Set:
    """This rank's rows of an evaluation set: what is asked of each, and its given answers, the true one first."""

    ids: np.ndarray
    rows: list[Row]
    detailed: bool
    generates: bool
    paraphrased: bool
    asked: list[Question] = field(default_factory=list)
    answers: list[list[Answer]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """The true answers as far as they are scored, where these are looked at token by token."""


def score_rows(
    model: PreTrainedModel,
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
    """
    decode = partial(encoder.tokenizer.decode, skip_special_tokens=True)
    questions: Questions = {}
    parts: dict[str, _Set] = {}
    for name, rows in sets.items():
        if len({len(wrong_answers_of(row)) for row in rows}) > 1:
            raise UserError(
                f"Rows of the evaluation set '{name}' differ in the number of perturbed answers: give each row the "
                "same number of them in perturbed_answer, or remove the field from all."
            )
        document = is_document(name)
        detailed = thorough or document or name in DETAILED
        generates = max_new_tokens is not None and not document and (thorough or prefix_of(name) is not None)
        ids = np.arange(len(rows)) if items is None else np.array(evenly(range(len(rows)), items), dtype=np.int64)
        ids = ids[own_share()]
        paraphrased = any(row.get("paraphrased_answer") is not None for row in rows)  # alike on all ranks
        part = parts[name] = _Set(ids, [rows[i] for i in ids], detailed, generates, paraphrased)
        # The facts of documents are the attacks' alone, and these need documents to compare with.
        tells_facts = not document or "holdout_doc" in sets
        for row, encoded in zip(part.rows, encoder.encode_rows(part.rows), strict=True):
            question, answers = _ask(questions, encoder, encoded, document)
            part.asked.append(question)
            part.answers.append(answers)
            true = encoded[0]
            if detailed:
                answers[0].detailed = True
                part.texts.append(_scored_text(row, true, decode))
                answers[0].own = kinds(true) == OWN if kinds is not None and tells_facts else None
            question.generates |= generates
    with evaluating(model), together(model, one_token(model)):
        answer_questions(model, encoder, questions, max_new_tokens, hidden, progress)
    shares = gathered({name: _collect(part, encoder) for name, part in parts.items()})
    scores = {}
    for name in sets:
        scores[name] = SetScores.merge([share[name] for share in shares])
    refuse_broken("losses", broken_items(scores), scores, model.dtype)
    return scores


def cached_scores(
    model: PreTrainedModel,
    data: TextDataModule,
    *,
    items: int | None = None,
    max_new_tokens: int,
    hidden: int | None = None,
    texts: bool = False,
    progress: bool = False,
) -> Scores:
    """Run ``score_rows``, whose arguments these are, on all evaluation sets, or read what it gave before.

    Numbers are kept and texts are not: where ``texts`` are wanted, the model is scored anew. A model that sees what
    follows is refused.
    """
    with evaluating(model), together(model, one_token(model)):
        require_causal(model)
    path, folder = None, cache_folder()
    if folder is not None:
        counted = [name for name, rows in data.evaluation_sets.items() if "counts" in (rows or [{}])[0]]
        facts = facts_of(model, data) | {
            "rows": {name: data.hashes[f"{name}_eval"] for name in data.evaluation_sets},
            "kinds": data.hashes["retain"],  # which tell the tokens that are a row's own
            "scores": [score.name for score in fields(SetScores)],  # what was kept before a score was new lacks it
            "settings": [items, max_new_tokens, hidden, data.thorough, counted, stops_of(model, data.encoder)],
        }
        path = content_path(folder, "scores", facts)
    stored = None if texts else read_shared(path)
    if stored is not None:
        return {name: SetScores.from_dict(kept) for name, kept in stored.items()}
    scores = score_rows(
        model,
        data.encoder,
        data.evaluation_sets,
        max_new_tokens=max_new_tokens,
        items=items,
        hidden=hidden,
        thorough=data.thorough,
        kinds=data.kinds,
        progress=progress,
    )
    if path is not None and is_first():
        keep(path, {name: s.as_dict() for name, s in scores.items()})
    return scores


def _parted(encoded: Encoded) -> tuple[Tokens, Tokens]:
    return tuple(encoded.input_ids[: encoded.prompt_length]), tuple(encoded.input_ids[encoded.prompt_length :])


def _scored_text(row: Row, encoded: Encoded, decode: Callable[[list[int]], str]) -> str:
    """A row's true answer as far as it is scored, or its piece of a document."""
    if encoded.lost:
        return decode(list(_parted(encoded)[1]))
    return row["answer"] if "answer" in row else decode(row["tokens"])


def _ask(
    questions: Questions, encoder: Encoder, encoded: Sequence[Encoded], document: bool
) -> tuple[Question, list[Answer]]:
    """Enter a row's answers under their prompts; returns its question and where each answer's scores will be."""
    answers = []
    for x in encoded:
        prompt, answer = _parted(x)
        given = questions.setdefault(prompt, Question()).answers
        answers.append(given.setdefault(answer, Answer(document, 0 if document else encoder.ends(x.input_ids))))
    return questions[_parted(encoded[0])[0]], answers


def _collect(part: _Set, encoder: Encoder) -> SetScores:
    """Put a set's scores together from those of its answers."""
    right, paraphrased, wrong = [], [], []
    for row, answers in zip(part.rows, part.answers, strict=True):
        losses = [answer.loss for answer in answers]
        n = len(losses) - len(wrong_answers_of(row))
        right.append(losses[0])
        paraphrased.append(losses[n - 1])
        wrong.append(losses[n:])
    more: dict[str, np.ndarray] = {}
    if part.generates:
        more |= _said(part.rows, [question.said for question in part.asked], encoder)
    if part.detailed and part.rows:
        for key in part.answers[0][0].details:
            more[key] = np.array([answers[0].details[key] for answers in part.answers], dtype=np.float64)
        more["zlib_bytes"] = np.array([len(zlib.compress(text.encode())) for text in part.texts], dtype=np.float64)
    return SetScores(
        part.ids,
        np.array(right, dtype=np.float64),
        np.array(paraphrased, dtype=np.float64) if part.paraphrased else None,
        np.array(wrong) if any(wrong) else None,
        **more,
    )


def _said(rows: Sequence[Row], said: Sequence[list[int]], encoder: Encoder) -> dict[str, np.ndarray]:
    """What the model said, and how much of each answer that is."""
    answers, texts = [encoder.words(row["answer"]) for row in rows], [encoder.said(tokens).strip() for tokens in said]
    counted, found = texts, {}
    if rows and "counts" in rows[0]:
        counted = [_counted(encoder, *pair) for pair in zip(said, rows, strict=True)]
        found["rouge_f1"] = rouge_l_f1(answers, counted)
        found["rouge_words"] = rouge_l_recall_of_words(answers, counted)
    pairs = zip(answers, texts, strict=True)
    return found | {
        "generations": np.array(texts, dtype=object),
        "rouge": rouge_l_recall(answers, counted),
        "repetition": np.array([repetition(text) for text in texts], dtype=np.float64),
        "entropy": np.array([ngram_entropy(text) for text in texts], dtype=np.float64),
        "exact": np.array([_plain(answer) == _plain(text) for answer, text in pairs], dtype=np.float64),
    }


def _plain(text: str) -> str:
    """A text in small letters, composed: what a tokenizer composes may have been written in parts."""
    return unicodedata.normalize("NFC", text).strip().lower()


def _counted(encoder: Encoder, said: list[int], row: Row) -> str:
    """What of a generation counts, where the row says so: its first tokens, up to certain texts."""
    text = encoder.said(said[: row["counts"]["tokens"]])
    for end in row["counts"]["before"]:
        text = text.split(end)[0]
    return text
