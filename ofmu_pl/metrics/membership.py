"""Membership inference: can a score tell forgotten rows from rows that were never trained on?"""

import numpy as np
from scipy import stats

from ofmu_pl.metrics.bootstrap import wilson
from ofmu_pl.metrics.result import Items, Metric, MetricResult

Array = np.ndarray


def min_k(log_probabilities: Array, share: float = 0.4) -> float:
    """Minus the mean of the lowest ``share`` of token scores, of one token at least (Shi et al. 2024).

    Args:
        log_probabilities: Log-probabilities of an answer's tokens, (n,), standardised for min-k++ (Zhang et al. 2024).
        share: Share of the tokens (open-unlearning: 0.4). An answer without tokens scores 0, as there.

    >>> min_k(np.array([-1.0, -4.0, -2.0, 0.0, -3.0]))
    3.5
    """
    if not len(log_probabilities):
        return 0.0
    k = max(1, int(len(log_probabilities) * share))
    return float(-np.partition(log_probabilities, k - 1)[:k].mean())


def auc(member: Array, stranger: Array) -> float:
    """``P(stranger > member) + P(equal) / 2``: 1 if members always score lower, 0.5 if the scores tell nothing.

    Args:
        member: Scores of forgotten rows, (N,) (losses and the like, which are low for known rows).
        stranger: Scores of rows that no model has seen, (M,).

    >>> auc(np.array([0.1, 0.2]), np.array([0.2, 0.9]))
    0.875
    """
    if np.isnan(member).any() or np.isnan(stranger).any() or not len(member) or not len(stranger):
        return float("nan")
    return float(stats.mannwhitneyu(stranger, member).statistic / (len(member) * len(stranger)))


def auc_interval(member: Array, stranger: Array) -> tuple[float, float]:
    """95 % interval of ``auc`` over members and strangers.

    It is Wilson's of a share of as many items as give it the variance of ``auc_items`` (Kottas, Kuss & Zapf 2014). A
    few rows tell little of that, so the variance of exponential scores (Hanley & McNeil 1982), where it is larger,
    counts as if five more rows had shown it. An AUC of 0 or 1 counts as one of as many items as the smaller side has
    rows, so that a few rows have a wide interval there, too. Ends are NaN if a score is.

    >>> low, high = auc_interval(np.arange(40.0), np.arange(40.0) + 0.5)
    >>> bool(0.37 < low < 0.42 and 0.62 < high < 0.67)
    True
    >>> low, high = auc_interval(np.zeros(1), np.ones(40))
    >>> round(low, 2), high
    (0.21, 1.0)
    """
    area, least = auc(member, stranger), min(len(member), len(stranger))
    if np.isnan(area):
        return area, area
    n, m, far = len(member), len(stranger), max(area, 1 - area)
    excess = (n - 1) * (far / (2 - far) - far**2) + (m - 1) * (2 * far**2 / (1 + far) - far**2)
    seen = sum(x.var() / max(1, len(x) - 1) for x in auc_items(member, stranger))
    variance = (least * seen + 5 * max(seen, (far * (1 - far) + excess) / (n * m))) / (least + 5)
    return wilson(area, area * (1 - area) / variance if 0 < area < 1 and least > 1 else least)


def auc_items(member: Array, stranger: Array) -> tuple[Array, Array]:
    """Values of members, (N,), and of strangers, (M,), whose two means add up to the AUC, and vary as it does.

    The AUC is a mean over members of the share of strangers that score higher, and as well a mean over strangers of the
    share of members that score lower; to first order it moves with both (the components of DeLong et al. 1988). The
    strangers' are given without their mean.

    >>> higher, lower = auc_items(np.array([0.1, 0.2]), np.array([0.2, 0.9]))
    >>> higher.tolist(), lower.tolist()
    ([1.0, 0.75], [-0.125, 0.125])
    """
    higher, lower = 1 - _share_below(stranger, member), _share_below(member, stranger)
    return higher, lower - lower.mean()


def auc_result(
    metric: Metric,
    sides: tuple[Array, Array],
    goal: float | None = None,
    definition: str = "exact",
    intervals: bool = True,
    goal_sides: tuple[Array, Array] | None = None,
) -> MetricResult:
    """The result that is an AUC of forgotten rows, (N,), against held-out ones, (M,), and how far it is from the goal.

    ``goal_sides`` are another model's scores of the same rows, where the goal is their AUC.
    """
    area, ends = auc(*sides), auc_interval(*sides) if intervals else None
    away: Items = ()
    items = () if np.isnan(area) else auc_items(*sides)
    if items and goal_sides is not None and list(map(len, goal_sides)) == list(map(len, sides)):
        away = tuple(x - y for x, y in zip(items, auc_items(*goal_sides), strict=True))
    elif items and goal is not None:
        away = (items[0] - goal, items[1])
    return metric.result(area, sum(map(len, sides)), goal, definition, ends, items, away)


def _share_below(scores: Array, of: Array) -> Array:
    """Share of ``scores`` that are lower than each of ``of``, with half of those that are equal."""
    ordered = np.sort(scores)
    below, upto = (np.searchsorted(ordered, of, side=side) for side in ("left", "right"))
    return (below + upto) / (2 * len(ordered))


def privacy_leakage(auc_: float, reference: float, epsilon: float = 0.0) -> float:
    """Per cent by which ``1 - AUC`` differs from a retrained model's (MUSE's privleak); 0 is ideal.

    At about -100 nothing is unlearned, and the attack still finds the members; above 0 they stand out as unknown.

    >>> round(privacy_leakage(0.9, 0.5), 6)
    -80.0
    """
    if 1 - reference + epsilon == 0:
        return float("nan")  # the attack finds every member of the retrained model: nothing to compare with
    return (reference - auc_) / (1 - reference + epsilon) * 100


def membership_closeness(auc_: float, reference: float) -> float:
    """``1 - |AUC - AUC_ref| / max(AUC_ref, 1 - AUC_ref)``: 1 where an attack learns what it learns after retraining.

    These are the parts of the privacy score in open-unlearning's report (arXiv 2506.12618), which its code lacks; the
    report's own normalisation could not be checked here, so compare such scores with ours only.

    >>> membership_closeness(0.5, reference=0.5), membership_closeness(1.0, reference=0.5)
    (1.0, 0.0)
    """
    return 1 - abs(auc_ - reference) / max(reference, 1 - reference)
