"""Scores of one model on the evaluation sets, item by item: all that metrics need, and all that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ofmu_pl.metrics.bootstrap import wilson
from ofmu_pl.support.errors import UserError

if TYPE_CHECKING:
    import torch


@dataclass
class SetScores:
    """Scores on one evaluation set. Arrays are float64 unless said otherwise; ``None`` where a set has no such score.

    Attributes:
        ids: Row numbers, (N,) int; a repeated one is counted once.
        answer_loss: Loss of the answer, (N,), nats per token, the end token included (for multiple choice: nats in
            all).
            The answer of a document is all of its piece but the first token; it has no end token.
        paraphrase_loss: Loss of the paraphrased answer, (N,) (of the answer in a row that has no paraphrase).
        wrong_losses: Losses of the perturbed answers, (N, K).
        rouge: ROUGE-L recall of what of the greedy generation counts, (N,), which is all of it unless rows say what.
        rouge_f1: ROUGE-L F1, without stemming, of what counts, (N,), where rows say what does.
        rouge_words: ROUGE-L recall as the package ``rouge`` counts words, of what counts, (N,), where rows say what
            does.
        repetition: Share of the generation's runs of three words that stood in it before, (N,).
        entropy: Entropy of its runs of two and of three words (``metrics.fluency``), (N,), bits.
        exact: 1 where it is the answer but for case and surrounding spaces, else 0, (N,).
        generations: Greedy generations, (N,) str.
        tokens: Number of the answer's tokens without the end token, (N,), which the next four leave out as well.
        correct: Number of them that are the most likely one after the true tokens before, (N,).
        suffix: Number of such tokens at the answer's end without a gap, (N,).
        min_k: Minus the mean of the lowest 40 % of their log-probabilities, (N,), nats.
        min_k_plus_plus: The same of log-probabilities standardised over the vocabulary, (N,).
        zlib_bytes: Length of the compressed text of the answer, or of the document's piece, (N,).
        facts_loss: Mean loss of those tokens of the answer that are its own, (N,), nats: neither copied from the
            question nor usual in retained answers (``data.guessable``); of all tokens in a row that has none.
    """

    ids: np.ndarray
    answer_loss: np.ndarray
    paraphrase_loss: np.ndarray | None = None
    wrong_losses: np.ndarray | None = None
    rouge: np.ndarray | None = None
    rouge_f1: np.ndarray | None = None
    rouge_words: np.ndarray | None = None
    repetition: np.ndarray | None = None
    entropy: np.ndarray | None = None
    exact: np.ndarray | None = None
    generations: np.ndarray | None = None
    tokens: np.ndarray | None = None
    correct: np.ndarray | None = None
    suffix: np.ndarray | None = None
    min_k: np.ndarray | None = None
    min_k_plus_plus: np.ndarray | None = None
    zlib_bytes: np.ndarray | None = None
    facts_loss: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Keep each item once, in order."""
        _, first = np.unique(self.ids, return_index=True)
        if len(first) < len(self.ids) or (np.diff(first) < 0).any():
            for name, value in vars(self).items():
                if value is not None:
                    setattr(self, name, value[first])

    @property
    def correct_loss(self) -> np.ndarray:
        """Loss of the right answer in truth ratios, (N,): the paraphrase where there is one."""
        return self.answer_loss if self.paraphrase_loss is None else self.paraphrase_loss

    def at_chance(self, guess: float) -> bool:
        """Whether the answers are known no better than by random guesses, whose loss is ``guess`` nats."""
        return bool(self.answer_loss.mean() >= guess)

    @classmethod
    def merge(cls, parts: Sequence[SetScores]) -> SetScores:
        """Put the items of several parts together, for example those of all ranks."""
        joined: dict[str, Any] = {}
        for name in vars(parts[0]):
            # A part without items has one-dimensional arrays only; a field that no part has stays None.
            found = [getattr(p, name) for p in parts if len(p.ids) and getattr(p, name) is not None]
            joined[name] = np.concatenate(found) if found else getattr(parts[0], name)
        return cls(**joined)

    def as_dict(self) -> dict[str, Any]:
        """Lists by field, for JSON, without texts: what a model said may be what it shall forget."""
        numbers = {name: value for name, value in vars(self).items() if name != "generations"}
        return {name: None if value is None else value.tolist() for name, value in numbers.items()}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> SetScores:
        """Restore what ``as_dict`` gave, or the same with ``generations``.

        A field that is unknown or missing, or has a null among its values, is a ``TypeError``.
        """
        n, arrays = len(fields["ids"]), {}
        for name, values in fields.items():
            if values is None or name == "gradient_norm":  # which earlier versions had
                continue
            if len(values) != n:
                raise ValueError("fields of one set have different numbers of items")
            if any(x is None for x in values):
                raise TypeError(f"{name} has a null")
            kind: Any = {"ids": np.int64, "generations": object}.get(name, np.float64)
            arrays[name] = np.array(values, dtype=kind)
        return cls(**arrays)


Scores = dict[str, SetScores]
"""Scores by evaluation set."""


@dataclass
class ImageScores:
    """Scores of one model on one set of images.

    Attributes:
        ids: Numbers of the images, (N,) int64, kept in ascending order; a repeated one is counted once.
        labels: True classes, (N,) int64.
        log_probs: Natural logarithms of the softmax, (N, C) float32 or float64.
    """

    ids: np.ndarray
    labels: np.ndarray
    log_probs: np.ndarray

    def __post_init__(self) -> None:
        """Keep each image once, in order: draws by position are then the same for every model and number of ranks."""
        _, first = np.unique(self.ids, return_index=True)
        self.ids, self.labels, self.log_probs = self.ids[first], self.labels[first], self.log_probs[first]

    def as_dict(self) -> dict[str, torch.Tensor]:
        """Tensors by field, for checkpoints."""
        import torch  # the metrics do without

        return {name: torch.from_numpy(value) for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, torch.Tensor]) -> ImageScores:
        """Restore what ``as_dict`` gave."""
        return cls(**{name: value.numpy() for name, value in fields.items()})

    @property
    def predictions(self) -> np.ndarray:
        """The likeliest class, (N,); -1, which is no class, where a log-probability is NaN."""
        return np.where(np.isnan(self.log_probs).any(axis=1), -1, self.log_probs.argmax(axis=1))

    @property
    def correct(self) -> np.ndarray:
        """Whether each prediction is right, (N,) bool; NaN is wrong."""
        return self.predictions == self.labels

    def at_chance(self, guess: float) -> bool:
        """Whether more images are right than of random guesses, whose loss is ``guess`` nats, is not shown (95 %)."""
        share = float(self.correct.mean())
        return share < 1 and wilson(share, len(self.ids))[0] <= np.exp(-guess)

    @property
    def losses(self) -> np.ndarray:
        """Cross-entropies, (N,) float64, nats."""
        return -self.log_probs[np.arange(len(self.labels)), self.labels].astype(np.float64)


def broken_items(scores: Scores) -> dict[str, int]:
    """Count the items of each set with a loss that is NaN or infinite; sets without such items are left out."""
    counts = {}
    for name, s in scores.items():
        losses = [s.answer_loss, s.correct_loss, *([] if s.wrong_losses is None else s.wrong_losses.T)]
        counts[name] = int((~np.isfinite(losses)).any(axis=0).sum())
    return {name: n for name, n in counts.items() if n}


def refuse_broken(what: str, broken: dict[str, int], scores: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Refuse a model that gives numbers that are not finite, by how many rows of each set have some."""
    counts = ", ".join(f"{n} of {len(scores[name].ids)} in {name}" for name, n in broken.items() if n)
    if counts:
        raise UserError(
            f"The model's {what} are not finite ({counts}): its weights are broken, or overflow in {dtype}, so give a "
            "sound checkpoint or float32 weights."
        )
