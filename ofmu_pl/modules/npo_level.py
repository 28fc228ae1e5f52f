"""A part for OFMU's lower level: the ascent raises NPO's forget loss, so that ``Reach`` serves NPO, too."""

import torch
from torch import Tensor

from ofmu_pl.losses import npo
from ofmu_pl.modules.base import Checkpoint, UnlearningModule
from ofmu_pl.modules.lower_level import LowerLevel
from ofmu_pl.modules.reference_scores import first_scores
from ofmu_pl.support.errors import UserError, check_range


class NPOLevel(LowerLevel):
    """Minus ``(2/beta) log(1 + (p/p_ref)^beta)`` of a forget answer, which ``NPO`` lowers and an ascent raises.

    p_ref is the answer's probability before the first step. The push fades as an answer becomes less likely, and
    no held-out loss sets its end.

    Args:
        beta: Inverse temperature, as in ``NPO``.

    Raises:
        UserError: ``beta`` is not above 0, or the data are images, which have no answers.

    Example:
        >>> NPOLevel(beta=0.1).seeks_goal
        False
    """

    def __init__(self, beta: float = 0.1) -> None:
        super().__init__()
        check_range(0, above=True, beta=beta)
        self.beta = beta
        self.reference_nll = torch.empty(0)

    def begin(self, method: UnlearningModule, iterations: int) -> None:
        """Score the forget answers by the model that is to forget, or take the scores of a checkpoint."""
        super().begin(method, iterations)
        data = method.run.data
        if data.modality != "text":
            raise UserError("NPO is for answers, which images have none of: set model.lower BoundedLoss.")
        if not method.run.checks_itself:  # a rehearsal has no weights
            self.reference_nll = torch.zeros(len(data.splits["forget"]))
        elif not len(self.reference_nll):
            self.reference_nll = first_scores(method, "forget")

    def values(self, nll: Tensor, targets: Tensor, ids: Tensor) -> Tensor:
        """Minus NPO's loss of each row, (b,)."""
        reference = self.reference_nll[ids.cpu()].to(nll.device, torch.promote_types(torch.float32, nll.dtype))
        return -npo(nll.sum(1), reference, self.beta)

    def state_dict(self) -> Checkpoint:
        """With the scores, since a resumed run's model has moved."""
        return {**super().state_dict(), "reference_nll": self.reference_nll}

    def load_state_dict(self, state: Checkpoint) -> None:
        """Restore what ``state_dict`` gave, before or after ``begin``."""
        super().load_state_dict(state)
        self.reference_nll = state["reference_nll"]
