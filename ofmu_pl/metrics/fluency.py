"""Whether answers are language: how often they repeat themselves, and how varied their words are.

A short answer repeats nothing, and a list repeats much: read both figures beside the retrained model's.
"""

import math
from collections import Counter

from ofmu_pl.metrics.result import Metric
from ofmu_pl.metrics.rouge import words_of

WEIGHTS = {2: 2 / 3, 3: 4 / 3}
"""Weights by the length of runs of words, as in ROME's fluency (Meng et al. 2022, arXiv 2202.05262, section 3.3)."""
_AGAIN = "In its answers to {} questions, {{value}} of all runs of three words stood in the same answer before."
_VARIED = (
    "In its answers to {} questions, runs of words have {{value}} bits of entropy; 0 is one word, or no end of it."
)
FLUENCY = {
    side: (
        Metric(f"{side}_repetition", higher_is_better=False, group="language", says=_AGAIN.format(what)),
        Metric(f"{side}_entropy", True, unit="bits", group="language", says=_VARIED.format(what)),
    )
    for side, what in (("forget", "forgotten"), ("retain", "retained"))
}
"""Metrics of generated answers by evaluation set, in the order of ``SetScores``' fields."""


def repetition(text: str, n: int = 3) -> float:
    """Share of the runs of ``n`` words that stood in the text before; 0 for a text without such a run.

    >>> repetition("the cat sat on the mat"), repetition("no no no no")
    (0.0, 0.5)
    """
    runs = _runs(text, n)
    return 1 - len(runs) / runs.total() if runs else 0.0


def ngram_entropy(text: str) -> float:
    """Weighted mean of the entropies of runs of two and of three words, in bits; 0 for a text without them.

    >>> round(ngram_entropy("no yes no yes no yes no yes"), 3), round(ngram_entropy("one two three four five"), 3)
    (0.995, 1.723)
    """
    total = 0.0
    for n, weight in WEIGHTS.items():
        runs = _runs(text, n)
        shares = [times / runs.total() for times in runs.values()]
        total += weight * sum(-share * math.log2(share) for share in shares)
    return total / sum(WEIGHTS.values())


def _runs(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = words_of(text, str.split)
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))
