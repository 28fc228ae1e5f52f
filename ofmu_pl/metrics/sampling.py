"""How likely an answer is to appear among several samples."""

from collections.abc import Sequence
from math import comb

import numpy as np

from ofmu_pl.support.errors import check_range

Array = np.ndarray


def leak_at_k(hits: Sequence[int], samples: int, k: int) -> Array:
    """``1 - C(n - c, k) / C(n, k)``: the chance that k samples hold a hit, without bias from n of which c are hits.

    It is the share of all choices of k of the n samples with a hit among them (Reisizadeh et al. 2025, arXiv
    2511.04934), computed in whole numbers.

    Args:
        hits: Number of samples that are hits, c, for each question.
        samples: Number of samples of a question, n.
        k: How many samples somebody looks at.

    Raises:
        UserError: k is above n, where nothing can be said without bias.

    >>> leak_at_k([0, 1, 4], samples=4, k=2).tolist()
    [0.0, 0.5, 1.0]
    """
    check_range(1, samples, k=k)
    whole = comb(samples, k)
    return np.array([(whole - comb(samples - c, k)) / whole for c in hits], dtype=np.float64)


def at_least_once(log_probability: Array, k: int) -> Array:
    """``1 - (1 - p)^k``: the chance that k samples hold an answer of probability p, exactly.

    Args:
        log_probability: Log-probability of the whole answer (a sum over its tokens), nats.
        k: Number of samples.

    >>> at_least_once(np.log([0.5, 1.0, 1e-12]), 2).round(15).tolist()
    [0.75, 1.0, 2e-12]
    """
    with np.errstate(divide="ignore"):  # p = 1
        return -np.expm1(k * np.log1p(-np.exp(np.minimum(log_probability, 0.0))))
