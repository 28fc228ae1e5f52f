"""What happens around training: measuring, exporting."""

from ofmu_pl.callbacks.budget import GradientBudget
from ofmu_pl.callbacks.export import ModelExport
from ofmu_pl.callbacks.image_evaluation import ImageEvaluation
from ofmu_pl.callbacks.text_evaluation import TextEvaluation
from ofmu_pl.callbacks.validation import ValidationRows

__all__ = ["GradientBudget", "ImageEvaluation", "ModelExport", "TextEvaluation", "ValidationRows"]
