r"""MIA-Efficacy of image classifiers (Jia et al. 2023, arXiv 2304.04934; SalUn, Fan et al. 2024, arXiv 2310.12508).

A support vector machine learns to tell retain samples (members) from test samples (strangers) by a feature of the
*unlearned* model's own output and is then run on the forget samples: the share it takes for strangers is the efficacy.
The decision is often a single threshold that moves with the number of samples (the same forget scores gave 30 to 56 %
with 2 x 2,000 to 2 x 10,000), and where members look like strangers the number is noise. Hence ``attack_quality``, and
no efficacy without its numbers of samples beside it.

Features come from (N, C) log-probabilities, each row summing to 1 in probability, and from (N,) labels, whether or not
they use them. A NaN there makes its sample's feature NaN.
"""

from collections.abc import Callable

import numpy as np
from scipy import special

Array = np.ndarray


def correctness(log_probs: Array, labels: Array) -> Array:
    """1 where the likeliest class is the label, else 0, (N,).

    >>> correctness(np.log([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1])).tolist()
    [1.0, 0.0]
    """
    right = (log_probs.argmax(axis=1) == labels).astype(np.float64)
    return np.where(np.isnan(log_probs).any(axis=1), np.nan, right)  # argmax takes a NaN for the largest


def confidence(log_probs: Array, labels: Array) -> Array:
    """``p_y``, the softmax probability of the label, (N,).

    >>> confidence(np.log([[0.75, 0.25], [0.75, 0.25]]), np.array([0, 1])).round(9).tolist()
    [0.75, 0.25]
    """
    return np.exp(log_probs.astype(np.float64)[np.arange(len(labels)), labels])


def entropy(log_probs: Array, labels: Array) -> Array:
    """``-sum_i p_i log p_i`` in nats, (N,), with ``0 log 0 = 0``.

    >>> entropy(np.log([[0.5, 0.5]]), np.array([0])).round(4).tolist()
    [0.6931]
    """
    log_p = log_probs.astype(np.float64)
    return -_expectation(log_p, log_p).sum(axis=1)


def modified_entropy(log_probs: Array, labels: Array) -> Array:
    """(N,) ``-(1 - p_y) log p_y - sum_(i != y) p_i log(1 - p_i)`` in nats (Song & Mittal 2021, arXiv 2003.10595).

    Unlike entropy it knows the label: 0 for a model that is sure and right, unbounded for one that is sure and wrong
    (infinite where ``p_y = 0``). For two classes it is ``-2 (1 - p_y) log p_y``.

    >>> modified_entropy(np.log([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 0])).round(4).tolist()
    [0.6931, 2.0794]
    """
    log_p = log_probs.astype(np.float64)
    rows, top = np.arange(len(log_p)), log_p.argmax(axis=1)
    others = log_p.copy()
    others[rows, top] = -np.inf
    # log(1 - p_i), to full precision at p_i = 1, too. Only the likeliest class can have p > 1/2, where 1 - p cancels:
    # its rest is the sum of the others.
    log_rest = np.log1p(-np.exp(others))
    log_rest[rows, top] = special.logsumexp(others, axis=1)
    wrong = _expectation(log_p, log_rest)
    wrong[rows, labels] = 0.0
    with np.errstate(invalid="ignore"):
        # p_y = 1 has log p_y = 0, and p_y = 0 its infinite limit: neither is 0 times infinity.
        right = np.exp(log_rest[rows, labels]) * log_p[rows, labels]
    return 0.0 - right - wrong.sum(axis=1)


def probability(log_probs: Array, labels: Array) -> Array:
    """All class probabilities, (N, C)."""
    return np.exp(log_probs.astype(np.float64))


FEATURES: dict[str, Callable[[Array, Array], Array]] = {
    "correctness": correctness,
    "confidence": confidence,
    "entropy": entropy,
    "modified_entropy": modified_entropy,
    "probability": probability,
}
"""Features that an attack learns from, by name; Jia et al. and SalUn report ``confidence``."""


def _expectation(log_p: Array, values: Array) -> Array:
    """``p * values`` where ``p > 0``, else 0."""
    with np.errstate(invalid="ignore"):
        return np.where(log_p == -np.inf, 0.0, np.exp(log_p) * values)


def mia_efficacy(feature_member: Array, feature_stranger: Array, feature_forget: Array) -> float:
    """``100 * |{forget samples taken for strangers}| / |forget|``, per cent.

    Where all members and strangers have one and the same feature, the attack assigns every sample to the larger side,
    to members if both are equally large: with all images classified right, correctness has an efficacy of 0.

    Args:
        feature_member: Feature of samples that the model was trained on and shall keep, (N,) or (N, C).
        feature_stranger: Feature of samples that no model has seen, (M,) or (M, C).
        feature_forget: Feature of samples that shall look like strangers, (K,) or (K, C).

    Returns:
        The efficacy; NaN if a feature is not finite or a side is empty.

    >>> sure, unsure = np.linspace(0.9, 1, 20), np.linspace(0.2, 0.3, 20)
    >>> mia_efficacy(sure, unsure, np.array([0.25, 0.95, 0.95, 0.95]))
    25.0
    """
    member, stranger, forget = map(_columns, (feature_member, feature_stranger, feature_forget))
    if not all(len(x) and np.isfinite(x).all() for x in (member, stranger, forget)):
        return float("nan")
    decision = _decide(np.concatenate([member, stranger]), _sides(member, stranger), forget)
    return float(100 * (decision < 0).mean())


def attack_quality(feature_member: Array, feature_stranger: Array, seed: int) -> tuple[float, float]:
    """How well the attack tells unseen members from unseen strangers, by 2-fold stratified cross-fitting.

    Args:
        feature_member: Feature of members, (N,) or (N, C).
        feature_stranger: Feature of strangers, (M,) or (M, C).
        seed: Seed of the halves.

    Returns:
        Balanced accuracy in per cent and AUC (0 to 1). At 50 and 0.5 the attack learns nothing, and the efficacy is
        noise. NaN if a feature is not finite or a side has fewer than two samples.

    >>> attack_quality(np.linspace(0.9, 1, 20), np.linspace(0.2, 0.3, 20), seed=0)
    (100.0, 1.0)
    """
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score  # takes a second: only where it is used
    from sklearn.model_selection import StratifiedKFold

    member, stranger = map(_columns, (feature_member, feature_stranger))
    if not all(len(x) > 1 and np.isfinite(x).all() for x in (member, stranger)):
        return float("nan"), float("nan")
    x, y = np.concatenate([member, stranger]), _sides(member, stranger)
    decision, areas = np.empty(len(x)), []
    for seen, held_out in StratifiedKFold(2, shuffle=True, random_state=seed).split(x, y):
        decision[held_out] = _decide(x[seen], y[seen], x[held_out])
        # The distances of two machines have no common scale: ranks are compared within a fold only.
        areas.append(roc_auc_score(y[held_out], decision[held_out]))
    return float(100 * balanced_accuracy_score(y, decision >= 0)), float(np.mean(areas))


def _columns(feature: Array) -> Array:
    x = np.asarray(feature, dtype=np.float64)
    return x[:, None] if x.ndim == 1 else x


def _sides(member: Array, stranger: Array) -> Array:
    return np.repeat([1, 0], [len(member), len(stranger)])


def _decide(x: Array, y: Array, judged: Array) -> Array:
    """Decisions of a machine trained on ``x``, (K,): a member from 0 on, as in ``SVC.predict``."""
    from sklearn.svm import SVC

    if (x == x[0]).all():  # its side would be up to rounding
        return np.full(len(judged), np.sign(y.mean() - 0.5))
    return SVC(C=3, gamma="auto", kernel="rbf").fit(x, y).decision_function(judged)
