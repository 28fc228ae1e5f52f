r"""Unlearning Depth Score (Jeung et al. 2026, arXiv 2605.24614): how deep does forgetting go?

With hidden states of a source model S put in the place of what layer l of the target gives, an entity's tokens lose

    Delta_l^S = mean_t ( log p_target(y_t) - log p_target, layer l from S(y_t) )                          [nats a token]

of their log-probability. A layer holds a fact where the retrained model's states lose it, KE = {l: Delta_l^ret > tau},
and of what it holds the unlearned model has erased

    LER_l = clip(Delta_l^unl / Delta_l^ret, 0, 1),     UDS = sum_KE Delta_l^ret LER_l / sum_KE Delta_l^ret
"""

import numpy as np

Array = np.ndarray
THRESHOLD = 0.05  # tau, nats a token


def layer_erasure(retrained: Array, unlearned: Array) -> Array:
    """LER from Delta^ret and Delta^unl of N rows and L layers, all (N, L); NaN where a layer does not hold the fact.

    >>> layer_erasure(np.array([[0.01, 0.5, 2.0]]), np.array([[3.0, 0.25, 4.0]])).tolist()
    [[nan, 0.5, 1.0]]
    """
    holds = retrained > THRESHOLD
    return np.where(holds, np.clip(unlearned / np.where(holds, retrained, 1.0), 0.0, 1.0), np.nan)


def depth_scores(retrained: Array, unlearned: Array) -> Array:
    """UDS of N rows, (N,): 0, all is there; 1, all is erased; NaN where no layer holds the fact.

    >>> depth_scores(np.array([[0.01, 0.5, 2.0], [0.0, 0.0, 0.0]]), np.array([[3.0, 0.25, 4.0], [1.0, 1.0, 1.0]]))
    array([0.9, nan])
    """
    return _weighted(retrained, layer_erasure(retrained, unlearned), axis=1)


def erasure_by_layer(retrained: Array, unlearned: Array) -> Array:
    """LER of L layers over N rows with the score's weights, (L,); NaN where a layer holds nothing.

    >>> erasure_by_layer(np.array([[0.01, 0.5], [0.0, 1.5]]), np.array([[1.0, 0.5], [1.0, 0.0]]))
    array([ nan, 0.25])
    """
    return _weighted(retrained, layer_erasure(retrained, unlearned), axis=0)


def _weighted(weights: Array, erased: Array, axis: int) -> Array:
    """Means of what is a number, with weights; NaN where nothing is."""
    weights = np.where(np.isnan(erased), 0.0, weights)
    total = weights.sum(axis)
    with np.errstate(invalid="ignore"):
        return (weights * np.nan_to_num(erased)).sum(axis) / np.where(total > 0, total, np.nan)
