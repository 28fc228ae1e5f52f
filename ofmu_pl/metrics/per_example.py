r"""Attacks on one example at a time, from many models: some unlearned it, some were never trained on it.

A mean over a forget set hides the few rows that leak. With N models that were trained on an example x and unlearned it
and M that were retrained without it, the confidences phi = ln p - ln(1 - p) of x are two samples, and an attacker who
sees one more confidence decides between them:

    epsilon(x) = max over decisions of max(ln(1 - delta - FPR) - ln FNR, ln(1 - delta - FNR) - ln FPR)

is what differential privacy would have to grant (scoring of the NeurIPS 2023 competition, google-deepmind/
unlearning_evaluation). U-LiRA (Hayes et al. 2024, arXiv 2403.01218) fits a normal to each side and decides by the ratio
of their densities.
"""

import math

import numpy as np
from scipy import stats

from ofmu_pl.metrics.membership import auc

Array = np.ndarray
FEWEST = 4  # fewest runs of a method that examples are compared over
DEALS = 100  # random deals of models to the two sides that say what chance finds
DELTA = 1e-5  # probability that the guarantee may fail
CAP = 50.0  # epsilon of an example that a decision tells without a mistake, and of one whose one side hardly varies
PEAKED = 0.01  # ratio of the two sides' ranges below which an example counts as told apart


def epsilons(unlearned: Array, retrained: Array) -> Array:
    """Compute epsilon of each example, (E,), from 0 to ``CAP``.

    Decisions are those of the competition: above one threshold, for the side with the larger median; and between two
    thresholds, for the side with the smaller range. Here they are all that the samples tell apart, there those of a
    grid, so an epsilon here is at least theirs. A decision without mistakes of one kind but with some of the other is
    left out, as there; where no decision is left, epsilon is 0. But for a perfect decision it cannot exceed about ln N.
    Confidences are given by model and example, (N, E) and (M, E).

    >>> rng = np.random.default_rng(0)
    >>> same, far = rng.normal(size=(2, 64, 1)), rng.normal(9, 1, size=(64, 1))
    >>> epsilons(same[0], far), bool(epsilons(*same)[0] < 3)
    (array([50.]), True)
    """
    return np.array([_epsilon(u, r) for u, r in zip(unlearned.T, retrained.T, strict=True)])


def _epsilon(one: Array, other: Array) -> float:
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return CAP
    ranges = np.ptp(one), np.ptp(other)
    if max(ranges) == 0:
        return 0.0 if one[0] == other[0] else CAP
    if min(ranges) / max(ranges) < PEAKED:
        return CAP
    values = np.unique(np.concatenate([one, other]))
    higher, lower = (other, one) if np.median(other) > np.median(one) else (one, other)
    above = [np.append(1 - _below(side, values), 0.0) for side in (higher, lower)]  # share at or above each value
    peaked, wide = (one, other) if ranges[0] < ranges[1] else (other, one)
    i, j = np.triu_indices(len(values))
    ends = [np.append(_below(side, values), 1.0) for side in (peaked, wide)]
    within = [share[j + 1] - share[i] for share in ends]  # share from value i to value j
    misses = np.concatenate([1 - above[0], 1 - within[0]])
    alarms = np.concatenate([above[1], within[1]])
    misses, alarms = (np.where(np.abs(x) < 1e-12, 0.0, x) for x in (misses, alarms))
    if ((misses == 0) & (alarms == 0)).any():
        return CAP
    used = (misses > 0) & (alarms > 0)
    if not used.any():
        return 0.0
    a, b = alarms[used], misses[used]
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.fmax(np.log(1 - DELTA - a) - np.log(b), np.log(1 - DELTA - b) - np.log(a))
    return float(np.clip(np.nanmax(np.append(found, 0.0)), 0.0, CAP))


def _below(side: Array, values: Array) -> Array:
    """Share of a sample that is below each value."""
    return np.searchsorted(np.sort(side), values) / len(side)


def forgetting_score(epsilon: Array, models: int) -> float:
    """Compute the competition's points for forgetting, 0 to 1: the mean over examples of 2^-floor(2 epsilon).

    An example whose epsilon reaches the largest multiple of 1/2 within ceil(ln(N - 1)) has none: N models cannot show
    more, so scores of different N are not comparable. (The competition had N = 512.)

    >>> forgetting_score(np.array([0.0, 0.7, 50.0]), models=64)
    0.5
    """
    most = math.ceil(math.log(models - 1)) if models > 2 else 0
    return float(np.where(epsilon < most, 2.0 ** -np.floor(2 * epsilon), 0.0).mean())


def u_lira(unlearned: Array, retrained: Array) -> dict[str, float]:
    """Decide for each model and example whether the model unlearned it, by normals fitted to all other models.

    Returns:
        All examples and models together: the AUC, the share of right decisions at a ratio of 1, both sides weighing the
        same, and the share of unlearned models that are found where 1 % of the retrained ones are taken for such.

    >>> rng = np.random.default_rng(0)
    >>> found = u_lira(rng.normal(3, 1, (32, 5)), rng.normal(0, 1, (32, 5)))
    >>> found["u_lira_auc"] > 0.95, found["u_lira_accuracy"] > 0.9
    (True, True)
    """
    if min(len(unlearned), len(retrained)) < 3:
        raise ValueError("U-LiRA fits normals to all models but one: give three or more on each side.")
    positive = _ratios(unlearned, unlearned, retrained)
    negative = -_ratios(retrained, retrained, unlearned)
    alarm = np.quantile(negative, 0.99, method="higher")
    return {
        "u_lira_auc": auc(negative.ravel(), positive.ravel()),
        "u_lira_accuracy": float(((positive > 0).mean() + (negative < 0).mean()) / 2),
        "u_lira_tpr_at_1_percent": float((positive > alarm).mean()),
    }


def compared(unlearned: Array, retrained: Array) -> dict[str, float]:
    """Figures of single examples over models: mean ``epsilon``, ``forgetting_score``, and those of U-LiRA."""
    epsilon = epsilons(unlearned, retrained)
    score = forgetting_score(epsilon, min(len(unlearned), len(retrained)))
    return {"epsilon": float(epsilon.mean()), "forgetting_score": score} | u_lira(unlearned, retrained)


def null(unlearned: Array, retrained: Array) -> dict[str, tuple[float, float]]:
    """Where 95 % of each figure lie when models are dealt to the two sides at random: nobody tells anything there.

    A few models are far from epsilon 0, score 1 and AUC 0.5 by chance alone, since decisions are judged by the models
    that they were made from (8 and 8 like models: 1.5, 0.18 and 0.49).

    >>> low, high = null(*np.random.default_rng(0).normal(size=(2, 8, 40)))["epsilon"]
    >>> bool(1 < low < high < 4)
    True
    """
    rng, models = np.random.default_rng(0), np.concatenate([unlearned, retrained])
    dealt = [np.split(rng.permutation(models), [len(unlearned)]) for _ in range(DEALS)]
    found = [list(compared(*sides).values()) for sides in dealt]
    ends = np.quantile(found, [0.025, 0.975], axis=0).T
    return {name: (float(low), float(high)) for name, (low, high) in zip(compared(*dealt[0]), ends, strict=True)}


def _ratios(judged: Array, own: Array, other: Array) -> Array:
    """(N, E) log-likelihood ratios of models, each under a normal of its own side without it and one of the other."""
    n = len(own)
    total, squares = own.sum(0), (own**2).sum(0)
    mean = (total - own) / (n - 1)
    variance = (squares - own**2) / (n - 1) - mean**2
    deviation = np.sqrt(np.maximum(variance * (n - 1) / (n - 2), 1e-12))
    theirs = np.sqrt(np.maximum(other.var(axis=0, ddof=1), 1e-12))
    return stats.norm.logpdf(judged, mean, deviation) - stats.norm.logpdf(judged, other.mean(0), theirs)
