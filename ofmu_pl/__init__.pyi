from .attacks.base import Attack as Attack
from .attacks.base import Finding as Finding
from .attacks.confidence import Confidence as Confidence
from .attacks.depth_score import DepthScore as DepthScore
from .attacks.linear_probe import LinearProbe as LinearProbe
from .attacks.logit_lens import LogitLens as LogitLens
from .attacks.prompts import Prompts as Prompts
from .attacks.prune import Prune as Prune
from .attacks.quantise import Quantise as Quantise
from .attacks.relearn import Relearn as Relearn
from .attacks.rtt import RTT as RTT
from .attacks.sample import Sample as Sample
from .attacks.subject import Subject as Subject
from .attacks.traces import Traces as Traces
from .core.algorithm import OuterIteration as OuterIteration
from .core.algorithm import ascend as ascend
from .core.algorithm import outer_iteration as outer_iteration
from .core.autograd import Autograd as Autograd
from .core.finite_difference import FiniteDifference as FiniteDifference
from .core.objective import OuterGradient as OuterGradient
from .core.objective import Phi as Phi
from .core.objective import outer_gradient as outer_gradient
from .core.safeguards import Penalty as Penalty
from .core.shared_adam import SharedAdam as SharedAdam
from .core.similarity import Cosine as Cosine
from .data import *
from .evaluation.base import Evaluation as Evaluation
from .evaluation.images import ImageEvaluation as ImageEvaluation
from .evaluation.text import TextEvaluation as TextEvaluation
from .evaluation.validation import ValidationRows as ValidationRows
from .metrics import *
from .modules import *
from .modules.base import UnlearningModule as UnlearningModule
from .modules.lower_level import BoundedLoss as BoundedLoss
from .modules.lower_level import HeldOutLevels as HeldOutLevels
from .modules.lower_level import LowerLevel as LowerLevel
from .modules.npo_level import NPOLevel as NPOLevel
from .modules.reaching import Reach as Reach
from .modules.steppers import AdamSteps as AdamSteps
from .modules.steppers import PathSteps as PathSteps
from .modules.steppers import PlainSteps as PlainSteps
from .modules.steppers import SharedSteps as SharedSteps
from .modules.steppers import Stepper as Stepper
from .modules.upper_level import FlatteningStep as FlatteningStep
from .modules.upper_level import NoPenalty as NoPenalty
from .modules.upper_level import PrintedPenalty as PrintedPenalty
from .modules.upper_level import UpperLevel as UpperLevel
from .networks import *
from .networks.base import Network as Network
from .support.errors import DivergedError as DivergedError
from .support.errors import UserError as UserError
from .training.budget import GradientBudget as GradientBudget
from .training.export import ModelExport as ModelExport
from .unlearning.run import Unlearned as Unlearned
from .unlearning.unlearn import unlearn as unlearn

__version__: str
