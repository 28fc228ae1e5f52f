"""OFMU: penalty-based bi-level machine unlearning, and the bench around it (see README.md).

Everything public can be had from here, and nothing is imported before it is asked for:

>>> from ofmu_pl import forget_quality
>>> forget_quality.__module__
'ofmu_pl.metrics.functional'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ofmu_pl.support.lazy import importer

if TYPE_CHECKING:  # the names below for mypy and editors; tests/test_face.py compares the two
    from ofmu_pl.core.algorithm import OuterIteration as OuterIteration
    from ofmu_pl.core.algorithm import outer_iteration as outer_iteration
    from ofmu_pl.core.autograd import Autograd as Autograd
    from ofmu_pl.core.finite_difference import FiniteDifference as FiniteDifference
    from ofmu_pl.core.inner import ascend as ascend
    from ofmu_pl.core.objective import OuterGradient as OuterGradient
    from ofmu_pl.core.objective import Phi as Phi
    from ofmu_pl.core.objective import outer_gradient as outer_gradient
    from ofmu_pl.core.penalty import Penalty as Penalty
    from ofmu_pl.core.similarity import Cosine as Cosine
    from ofmu_pl.data import *  # noqa: F403
    from ofmu_pl.evaluation.base import Evaluation as Evaluation
    from ofmu_pl.evaluation.images import ImageEvaluation as ImageEvaluation
    from ofmu_pl.evaluation.text import TextEvaluation as TextEvaluation
    from ofmu_pl.evaluation.validation import ValidationRows as ValidationRows
    from ofmu_pl.metrics import *  # noqa: F403
    from ofmu_pl.modules import *  # noqa: F403
    from ofmu_pl.modules.base import UnlearningModule as UnlearningModule
    from ofmu_pl.networks import *  # noqa: F403
    from ofmu_pl.networks.base import Network as Network
    from ofmu_pl.support.errors import DivergedError as DivergedError
    from ofmu_pl.support.errors import UserError as UserError
    from ofmu_pl.training.budget import GradientBudget as GradientBudget
    from ofmu_pl.training.export import ModelExport as ModelExport

__version__ = "0.2.0"

_NAMES = {
    "core.algorithm": "OuterIteration outer_iteration",
    "core.autograd": "Autograd",
    "core.finite_difference": "FiniteDifference",
    "core.inner": "ascend",
    "core.objective": "OuterGradient Phi outer_gradient",
    "core.penalty": "Penalty",
    "core.similarity": "Cosine",
    "data": "Authors CIFAR10 CIFAR100 ChatEncoder Digits ImageDataModule PairedDataModule PlainEncoder TOFU "
    "TextDataModule Trivia WMDP collate",
    "evaluation.base": "Evaluation",
    "evaluation.images": "ImageEvaluation",
    "evaluation.text": "TextEvaluation",
    "evaluation.validation": "ValidationRows",
    "metrics": "DEFINITIONS Definition DefinitionName FEATURES ImageScores ImageUnlearning ItemMean Metric "
    "MetricResult Scores SetScores attack_quality auc closer_to_one confusion extraction_strength forget_quality "
    "harmonic_mean interval log_truth_ratio membership_closeness mia_efficacy min_k normalised_probability "
    "overall_score overall_scores privacy_leakage probability rouge_l_recall tofu_metrics true_better "
    "truth_probability vision_metrics",
    "modules": "BatchNormOnly CEU DPO DoNothing FineTune Fisher GradDiff Influence L1Sparse NPO OFMU PDU RMU "
    "RandomLabels SCRUB SalUn SimNPO UNDIAL WeightedAscent",
    "modules.base": "UnlearningModule",
    "networks": "CausalLM ResNet18 SmallCNN",
    "networks.base": "Network",
    "support.errors": "DivergedError UserError",
    "training.budget": "GradientBudget",
    "training.export": "ModelExport",
}
"""What each room shows: all of its own ``__all__``, or what is named here where it has none."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(["__version__", *_HOMES])  # noqa: PLE0605


if not TYPE_CHECKING:  # a type checker would believe that there is any name
    __getattr__ = importer(__name__, _HOMES)


def __dir__() -> list[str]:
    """What is public, and what has been imported."""
    return sorted({*globals(), *__all__})
