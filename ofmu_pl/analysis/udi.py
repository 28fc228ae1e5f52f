r"""The Unlearning Difficulty Index (paper, appendix "Measuring Unlearning Difficulty").

    UDI(x) = alpha |g_f(x)| + lambda (1 - sim(g_f, g_r)) + gamma Delta_l(x),        alpha = lambda = gamma = 1

The paper leaves open, and we chose:

* *Whose gradient is in the similarity*: printed without x. A gradient of the whole forget set would make the term a
  constant, so it is the sample's, against the gradient of the retain loss.
* *What is conflict*: the term grows as gradients oppose each other, so a sample whose gradient is like the retain
  gradient counts as easy; section 3.1 calls the same alignment what makes forgetting interfere with retention. We
  compute the term as printed; the similarities are returned, so that the other reading can be had.
* *The margin's target*: "the loss margin to the target threshold used for termination (higher margin = harder)", and no
  threshold is given. Ours is ``max(0, threshold - l(x))``: how far the loss must rise; 0 for a sample past it.
* *At which weights*: those of the target, before unlearning.
* *Units*: a norm (nats per unit of parameter), a number from 0 to 2, and nats are added as they are, so whichever
  spreads most decides the order (on the quickstart's target the norm: standard deviations 0.36, 0.02 and 0.02).

For a model that has learnt its samples the norm *falls* with confidence while the margin rises, so the index need not
call confident samples hard, as the caption of the paper's figure of easy and hard samples has it: its rank correlation
with confidence is -0.77 on TOFU's forget10 and the tiny Llama of our tests.
"""

from dataclasses import dataclass

import numpy as np

from ofmu_pl.support.errors import UserError


@dataclass(frozen=True)
class UDI:
    """The index of N samples and its terms, all float64, (N,).

    Attributes:
        value: The index; higher is harder.
        gradient_norm: ``|g_f(x)|``.
        conflict: ``1 - sim``.
        margin: ``Delta_l``, nats.
    """

    value: np.ndarray
    gradient_norm: np.ndarray
    conflict: np.ndarray
    margin: np.ndarray


def unlearning_difficulty(norms: np.ndarray, similarities: np.ndarray, losses: np.ndarray, threshold: float) -> UDI:
    """Compute the index of each sample.

    Args:
        norms: Norms of the samples' loss gradients, (N,).
        similarities: Cosines of these gradients with that of the retain loss, (N,).
        losses: Losses of the samples, (N,), nats.
        threshold: Loss at which a sample counts as forgotten, nats; ``ln V``, a blind guess, is what this library's
            ``lower.bound: uniform`` takes.

    >>> norms, similarities, losses = np.array([2.0, 1.0]), np.array([0.5, -1.0]), np.array([1.0, 9.0])
    >>> unlearning_difficulty(norms, similarities, losses, threshold=3.0).value.tolist()
    [4.5, 3.0]
    """
    terms = np.array([norms, 1 - np.asarray(similarities), np.maximum(0.0, threshold - np.asarray(losses))], np.float64)
    if not np.isfinite(terms).all():
        broken = int((~np.isfinite(terms)).any(axis=0).sum())
        raise UserError(
            f"{broken} of {terms.shape[1]} samples have a loss or gradient that is not finite: give a sound checkpoint."
        )
    return UDI(np.ones(3) @ terms, *terms)


def easiest_and_hardest(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the thirds with the lowest and with the highest index, in order; of ties the first is easier.

    The paper does not say where easy ends and hard begins; the middle third is left out.

    Args:
        value: The index, (N,); thirds are rounded down, to one sample at least.

    >>> easy, hard = easiest_and_hardest(np.array([3.0, 1.0, 2.0, 9.0, 0.0, 5.0]))
    >>> easy.tolist(), hard.tolist()
    ([1, 4], [3, 5])
    """
    order = np.argsort(value, kind="stable")
    n = max(1, len(order) // 3)
    return np.sort(order[:n]), np.sort(order[-n:])
