r"""TOFU's quantities as pure functions, in log space (the definition called ``exact``).

Losses are mean negative log-likelihoods of an answer in nats a token, over all its tokens and the end token.
open-unlearning computes the same ratios from probabilities and adds 1e-10 to denominators, which takes over once
losses pass about 23 nats (research/llm-anchors.md, section 0); here nothing is added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rouge_score import rouge_scorer
from scipy import special, stats

Array = np.ndarray


def probability(loss: Array) -> Array:
    """``p(y|x)^(1/n) = exp(-loss)``, the geometric mean of an answer's token probabilities.

    Args:
        loss: Any shape, nats a token.

    >>> probability(np.array([0.0, np.log(4.0)])).tolist()
    [1.0, 0.25]
    """
    return np.exp(-np.asarray(loss, dtype=np.float64))


def log_truth_ratio(correct_loss: Array, wrong_losses: Array) -> Array:
    """``log TR = correct_loss - mean_k wrong_loss_k``: how much likelier wrong answers are than the right one.

    TR = exp(-mean wrong_loss) / exp(-correct_loss), the geometric mean over wrong answers (TOFU's evaluation code;
    the paper's text has the arithmetic one).

    Args:
        correct_loss: (N,) of the paraphrased answer, or of the answer where there is no paraphrase.
        wrong_losses: (N, K) of the perturbed answers.
    """
    return np.asarray(correct_loss, dtype=np.float64) - np.asarray(wrong_losses, dtype=np.float64).mean(axis=1)


def closer_to_one(log_ratio: Array) -> Array:
    """``min(TR, 1/TR) = exp(-|log TR|)``: 1 where right and wrong answers are equally likely (forget truth ratio)."""
    return np.exp(-np.abs(log_ratio))


def true_better(log_ratio: Array) -> Array:
    """``max(0, 1 - TR)``: 1 where the right answer is far likelier (truth ratio of sets to be kept)."""
    return np.abs(np.expm1(np.minimum(log_ratio, 0.0)))


def normalised_probability(correct_loss: Array, wrong_losses: Array) -> Array:
    """``p / (p + sum_k p_k)`` of length-normalised probabilities: a softmax over minus the losses.

    Args:
        correct_loss: (N,).
        wrong_losses: (N, K).

    >>> normalised_probability(np.array([900.0]), np.array([[900.0, 900.0, 900.0]])).tolist()
    [0.25]
    """
    losses = np.column_stack([correct_loss, wrong_losses]).astype(np.float64)
    return special.softmax(-losses, axis=1)[:, 0]


def rouge_l_recall(references: Sequence[str], generations: Sequence[str]) -> Array:
    """ROUGE-L recall with stemming, by Google's rouge-score; 0 for an empty reference or generation.

    >>> rouge_l_recall(["the cat sat"], ["a cat sat down"]).round(3).tolist()
    [0.667]
    """
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=True)
    pairs = zip(references, generations, strict=True)
    return np.array([scorer.score(r, g)["rougeL"].recall for r, g in pairs], dtype=np.float64)


def forget_quality(log_ratio: Array, reference_log_ratio: Array) -> tuple[float, float]:
    """Two-sided Kolmogorov-Smirnov test of the truth ratios of two models.

    Args:
        log_ratio: (N,) of the unlearned model; any monotone function of TR gives the same test.
        reference_log_ratio: (M,) of the retrained one.

    Returns:
        The p-value (TOFU's forget quality) and the distance D.
    """
    if np.isnan(log_ratio).any() or np.isnan(reference_log_ratio).any():
        return float("nan"), float("nan")
    result = stats.ks_2samp(log_ratio, reference_log_ratio)
    return float(result.pvalue), float(result.statistic)


def model_utility(parts: Sequence[float]) -> float:
    """Harmonic mean ``n / sum_i 1/x_i`` of the nine parts; 0 if one is 0, NaN if one is NaN."""
    return float(stats.hmean(np.asarray(parts, dtype=np.float64)))
