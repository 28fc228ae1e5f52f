"""OFMU: penalty-based bi-level machine unlearning, and the bench around it.

Everything public can be had from here, and nothing is imported before it is asked for:

>>> from ofmu_pl import forget_quality
>>> forget_quality.__module__
'ofmu_pl.metrics.functional'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ofmu_pl.support.lazy import lazy

if TYPE_CHECKING:  # all there is to say of a public name: ofmu_pl.support.lazy reads these lines
    from ofmu_pl.attacks import *  # noqa: F403
    from ofmu_pl.core.algorithm import OuterIteration as OuterIteration
    from ofmu_pl.core.algorithm import outer_iteration as outer_iteration
    from ofmu_pl.core.autograd import Autograd as Autograd
    from ofmu_pl.core.finite_difference import FiniteDifference as FiniteDifference
    from ofmu_pl.core.inner import ascend as ascend
    from ofmu_pl.core.objective import OuterGradient as OuterGradient
    from ofmu_pl.core.objective import Phi as Phi
    from ofmu_pl.core.objective import outer_gradient as outer_gradient
    from ofmu_pl.core.penalty import Penalty as Penalty
    from ofmu_pl.core.shared_adam import SharedAdam as SharedAdam
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
    from ofmu_pl.unlearning.result import Unlearned as Unlearned
    from ofmu_pl.unlearning.unlearn import unlearn as unlearn
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
    __all__.append("__version__")

__version__ = "0.2.0"
