"""How far the gradients of forget rows agree, which foretells what relearning some of them brings back of others."""

from ofmu_pl.metrics.result import Metric

ALIGNMENT = Metric("gradient_alignment", higher_is_better=False, unit="cosine", group="forgotten")


def mean_cosine(square: float, n: int) -> float:
    r"""The mean cosine of pairs of different vectors, from the length of the sum of their unit vectors.

    With unit vectors u_i it is ``(|sum_i u_i|^2 - n) / (n (n - 1))``, as ``|sum_i u_i|^2`` has n ones and each pair
    twice. To first order a step ``-eta g_S`` that relearns rows S moves the loss of other rows A by
    ``-eta <g_A, g_S>``: what S brings back of A grows with the cosine of their gradients.

    Args:
        square: ``|sum_i u_i|^2``.
        n: Number of vectors, without those that vanish, at least 2.

    >>> mean_cosine(9.0, 3), mean_cosine(2.0, 2), mean_cosine(0.0, 2)
    (1.0, 0.0, -1.0)
    """
    return (square - n) / (n * (n - 1))
