"""The paper's analyses: gradients of samples, unlearning difficulty, embedding alignment, correlation."""

from ofmu_pl.analysis.correlation import Correlation, spearman
from ofmu_pl.analysis.difficulty import analyse
from ofmu_pl.analysis.embeddings import cosine, embed
from ofmu_pl.analysis.gradients import SampleGradients, mean_gradient, sample_gradients
from ofmu_pl.analysis.udi import UDI, easiest_and_hardest, unlearning_difficulty

__all__ = [
    "UDI",
    "Correlation",
    "SampleGradients",
    "analyse",
    "cosine",
    "easiest_and_hardest",
    "embed",
    "mean_gradient",
    "sample_gradients",
    "spearman",
    "unlearning_difficulty",
]
