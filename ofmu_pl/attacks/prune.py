"""Pruning: does a model without its smallest weights say what was forgotten?

Unlearning moves many weights a little, and what it added is lost first where the smallest weights go. The rule is Han
et al. 2015 (arXiv 1506.02626), magnitudes in each matrix by itself; on safety training see arXiv 2402.05162.
"""

from collections.abc import Sequence
from functools import partial

from ofmu_pl.attacks.weights import WeightAttack
from ofmu_pl.networks.rounding import prune_matrices
from ofmu_pl.support.errors import UserError


class Prune(WeightAttack):
    """Set the smallest weights of each matrix to 0, and ask for the forgotten rows.

    Pruned are the matrices that ``Quantise`` rounds. Found is the mean probability ``exp(-loss)`` of the forgotten
    rows' answers at the share that is best for the attacker. Beside it stand the share of what was forgotten that
    pruning gives back, and the retain rows' probability at each share.

    Args:
        shares: Shares of each matrix' weights, in (0, 1), the smallest by magnitude.
        rows: Most forgotten rows, and most retain rows, that are asked for; ``null``: all.

    Example:
        >>> [metric.name for metric in Prune([0.5]).metrics]
        ['prune_prob', 'prune_given_back', 'prune_retain_prob_0', 'prune_retain_prob_0.5']
    """

    x_label = "share of weights set to 0"
    tests = "pruned"

    def __init__(self, shares: Sequence[float] = (0.1, 0.3, 0.5), rows: int | None = 100) -> None:
        if not shares or not all(0 < share < 1 for share in shares):
            raise UserError(f"attacks.shares is {list(shares)}: give shares of weights between 0 and 1.")
        self.shares = list(shares)
        super().__init__({f"{share}": partial(prune_matrices, share=share) for share in shares}, "0", rows)
