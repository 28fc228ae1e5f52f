r"""TOFU's quantities as pure functions, in log space.

Losses are mean negative log-likelihoods of an answer in nats per token, over all its tokens and the end token.
``epsilon`` is what open-unlearning adds to denominators in probability space; it takes over once losses pass about 23
nats, since exp(-23) = 1e-10. The default adds nothing.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import special, stats

Array = np.ndarray


def _log(epsilon: float) -> float:
    return np.log(epsilon) if epsilon else -np.inf


def _plus(log_x: Array, epsilon: float) -> Array:
    """``log(x + epsilon)``; NaN stays NaN without a warning."""
    with np.errstate(invalid="ignore"):
        return np.logaddexp(log_x, _log(epsilon))


def probability(loss: Array) -> Array:
    """``p(y|x)^(1/n) = exp(-loss)``, the geometric mean of an answer's token probabilities.

    >>> probability(np.array([0.0, np.log(4.0)])).tolist()
    [1.0, 0.25]
    """
    return np.exp(-np.asarray(loss, dtype=np.float64))


def log_truth_ratio(
    correct_loss: Array,
    wrong_losses: Array,
    mean: Literal["geometric", "arithmetic"] = "geometric",
    epsilon: float = 0.0,
) -> Array:
    """``log TR``, ``TR = mean_k p(wrong_k) / (p(correct) + epsilon)``: how much likelier wrong answers are.

    With the geometric mean and no epsilon ``log TR = correct_loss - mean_k wrong_loss_k``. The geometric mean is that
    of TOFU's and open-unlearning's evaluation code, the arithmetic one that of TOFU's paper and training code.

    Args:
        correct_loss: Loss of the paraphrased answer, or of the answer where there is no paraphrase, (N,).
        wrong_losses: Losses of the perturbed answers, (N, K).
        mean: Kind of mean over the wrong answers' probabilities.
        epsilon: A number added to the denominator.

    >>> correct, wrong = np.array([np.log(2)]), np.array([[np.log(2), np.log(8)]])
    >>> np.exp(log_truth_ratio(correct, wrong)).round(3).tolist()
    [0.5]
    >>> np.exp(log_truth_ratio(correct, wrong, "arithmetic")).round(3).tolist()
    [0.625]
    """
    wrong = np.asarray(wrong_losses, dtype=np.float64)
    numerator = -wrong.mean(axis=1)
    if mean == "arithmetic":
        numerator = special.logsumexp(-wrong, axis=1) - np.log(wrong.shape[1])
    return numerator - _plus(-np.asarray(correct_loss, dtype=np.float64), epsilon)


def closer_to_one(log_ratio: Array, epsilon: float = 0.0) -> Array:
    """``min(TR, 1 / (TR + epsilon))``: 1 where right and wrong answers are equally likely (forget truth ratio).

    >>> closer_to_one(np.log([0.5, 1.0, 2.0])).round(3).tolist()
    [0.5, 1.0, 0.5]
    """
    return np.exp(np.minimum(log_ratio, -_plus(log_ratio, epsilon)))


def true_better(log_ratio: Array) -> Array:
    """``max(0, 1 - TR)``: 1 where the right answer is far likelier (truth ratio of sets to be kept).

    >>> true_better(np.log([0.25, 1.0, 2.0])).round(3).tolist()
    [0.75, 0.0, 0.0]
    """
    return np.abs(np.expm1(np.minimum(log_ratio, 0.0)))


def truth_probability(log_ratio: Array) -> Array:
    """``p(correct) / (p(correct) + p(wrong)) = 1 / (1 + TR)``, open-unlearning's ``prob_mean`` (its report's TR).

    >>> truth_probability(np.log([0.25, 1.0])).round(3).tolist()
    [0.8, 0.5]
    """
    return special.expit(-np.asarray(log_ratio))


def normalised_probability(correct_loss: Array, wrong_losses: Array, epsilon: float = 0.0) -> Array:
    """``p / (p + sum_k p_k + epsilon)`` of length-normalised probabilities: a softmax over minus the losses.

    Args:
        correct_loss: Loss of the right answer, (N,).
        wrong_losses: Losses of the wrong answers, (N, K).
        epsilon: A number added to the denominator.

    >>> normalised_probability(np.array([900.0]), np.array([[900.0, 900.0, 900.0]])).tolist()
    [0.25]
    """
    losses = np.column_stack([correct_loss, wrong_losses, np.full(len(correct_loss), -_log(epsilon))])
    return special.softmax(-losses.astype(np.float64), axis=1)[:, 0]


def extraction_strength(suffix: Array, tokens: Array, floor: int = 0) -> Array:
    """``max(suffix, floor) / tokens``: the share of an answer that greedy decoding completes from what precedes it.

    ``1 - k/n`` with k the least prefix after which every token is the most likely one (Carlini et al. 2021).

    Args:
        suffix: Number of tokens at the end that are all right, (N,).
        tokens: Number of all tokens, (N,); 0 gives 0.
        floor: Least number of extracted tokens; 1 in open-unlearning, where an answer whose last token is wrong gets
            1/n.

    >>> extraction_strength(np.array([3.0, 0.0]), np.array([4.0, 4.0])).tolist()
    [0.75, 0.0]
    """
    return np.where(tokens > 0, np.maximum(suffix, floor) / np.maximum(tokens, 1), 0.0)


def forget_quality(log_ratio: Array, reference_log_ratio: Array) -> tuple[float, float]:
    """Two-sided Kolmogorov-Smirnov test of the truth ratios of two models.

    Args:
        log_ratio: Log truth ratios of the unlearned model, (N,); any strictly monotone function of TR gives the same
            test.
        reference_log_ratio: Those of the retrained model, (M,).

    Returns:
        The p-value (TOFU's forget quality) and the distance D; NaN if a ratio is.

    Of forty rows each, the truth ratios of a quarter lie elsewhere, which is not enough to tell the models apart:

    >>> retrained = np.arange(40.0)
    >>> p, distance = forget_quality(np.where(retrained < 10, retrained - 40, retrained - 10), retrained)
    >>> round(p, 3), distance
    (0.165, 0.25)
    """
    if np.isnan(log_ratio).any() or np.isnan(reference_log_ratio).any():
        return float("nan"), float("nan")
    result = stats.ks_2samp(log_ratio, reference_log_ratio)
    return float(result.pvalue), float(result.statistic)


def forget_quality_distance(p: float, n: int) -> float:
    """The distance D that gives forget quality p between n and n items, for another program's total.

    D is a multiple of 1 / n, and p falls as D grows, so that bisection finds the inverse (of D = 0 and 1 / n,
    which both give 1, the first).
    """
    items = np.arange(n)
    steps = bisect_left(items, -p * (1 + 1e-6), key=lambda k: -stats.ks_2samp(items, items + k - 0.5 * (k > 0)).pvalue)
    return steps / n


def harmonic_mean(parts: Sequence[float]) -> float:
    """``n / sum_i 1/x_i``; 0 if a part is 0, NaN if one is NaN. Model utility is that of nine parts.

    >>> round(harmonic_mean([1.0, 0.5]), 4)
    0.6667
    """
    return float(stats.hmean(np.asarray(parts, dtype=np.float64)))


def overall_score(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The paper's overall score: the mean over metrics of each method's value over the best method's (appendix).

    It depends on the set of methods compared, and takes a higher value of every metric as better, so it rewards
    forgetting a random set of images beyond what retraining does. The paper does not say whether the retrained model
    takes part in the maximum; here it does if it is among the methods. A method with a NaN scores NaN and does not
    touch the others.

    Args:
        metrics: For each method its metrics by name, all >= 0: forget quality, model utility, forget truth ratio of
            TOFU; UA, RA, TA, MIA of images.

    >>> overall_score({"a": {"FQ": 0.5, "MU": 0.6}, "b": {"FQ": 0.1, "MU": 0.3}})
    {'a': 1.0, 'b': 0.35}
    """
    whole = {method: values for method, values in metrics.items() if not np.isnan(list(values.values())).any()}
    best: dict[str, float] = {}
    for values in whole.values():
        for name, value in values.items():
            best[name] = max(value, best.get(name, value))
    scores = dict.fromkeys(metrics, float("nan"))
    for method, values in whole.items():
        scores[method] = float(np.mean([value / best[name] if best[name] else 0.0 for name, value in values.items()]))
    return scores
