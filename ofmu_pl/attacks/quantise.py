"""Quantisation: does rounding the weights undo the unlearning?

Zhang et al. 2024 (arXiv 2410.16454): unlearning moves weights so little that rounding to 4 bits maps many of them to
the value that the target's are rounded to. Their script asks bitsandbytes for ``load_in_4bit`` alone, which is
``fp4``; others round to ``nf4``: so a type is always named here.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from ofmu_pl.attacks.weights import WeightAttack
from ofmu_pl.networks.rounding import round_matrices
from ofmu_pl.support.errors import UserError, check_range


class Quantise(WeightAttack):
    """Round the weights, and ask for the forgotten rows.

    Rounded are the weights of linear and convolutional layers, but not embeddings and a language model's output layer;
    the arithmetic stays in float32. Found is the mean probability ``exp(-loss)`` of the forgotten rows' answers at the
    width that is best for the attacker. Beside it stand the share of what was forgotten that rounding gives back,
    ``(found - before) / (target before - before)``, and the retain rows' probability at each width.

    Args:
        widths: What the weights are rounded to: a number of bits, with a step for each output channel (absolute
            maximum, symmetric, round to nearest), or bitsandbytes' ``nf4`` or ``fp4``, in blocks of 64 weights.
        rows: Most forgotten rows, and most retain rows, that are asked for; ``null``: all.

    Example:
        >>> [metric.name for metric in Quantise([8, "nf4"]).metrics[2:]]
        ['quantise_retain_prob_32', 'quantise_retain_prob_8', 'quantise_retain_prob_nf4']
    """

    x_label = "bits"
    tests = "bits"

    def __init__(self, widths: Sequence[int | Literal["nf4", "fp4"]] = (8, 4, 3), rows: int | None = 100) -> None:
        if not widths:
            raise UserError("attacks.widths is empty: give what the weights are rounded to, for example [8, 4].")
        for width in widths:
            if isinstance(width, int):
                check_range(2, 16, widths=width)
            elif width not in ("nf4", "fp4"):
                raise UserError(f"attacks.widths has '{width}': give numbers of bits, nf4 or fp4.")
        self.widths = list(widths)
        super().__init__({str(width): partial(round_matrices, width=width) for width in widths}, "32", rows)
