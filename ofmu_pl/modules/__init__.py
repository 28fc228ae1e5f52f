"""Methods as LightningModules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ofmu_pl.support.lazy import lazy

if TYPE_CHECKING:
    from ofmu_pl.modules.distillation import CEU as CEU
    from ofmu_pl.modules.distillation import UNDIAL as UNDIAL
    from ofmu_pl.modules.finetune import FineTune as FineTune
    from ofmu_pl.modules.fisher import Fisher as Fisher
    from ofmu_pl.modules.graddiff import GradDiff as GradDiff
    from ofmu_pl.modules.influence import Influence as Influence
    from ofmu_pl.modules.ofmu import OFMU as OFMU
    from ofmu_pl.modules.one_shot import BatchNormOnly as BatchNormOnly
    from ofmu_pl.modules.one_shot import DoNothing as DoNothing
    from ofmu_pl.modules.pdu import PDU as PDU
    from ofmu_pl.modules.preference import DPO as DPO
    from ofmu_pl.modules.preference import NPO as NPO
    from ofmu_pl.modules.preference import SimNPO as SimNPO
    from ofmu_pl.modules.rectify import BLUR as BLUR
    from ofmu_pl.modules.rectify import GRU as GRU
    from ofmu_pl.modules.relabel import RandomLabels as RandomLabels
    from ofmu_pl.modules.relabel import SalUn as SalUn
    from ofmu_pl.modules.rmu import RMU as RMU
    from ofmu_pl.modules.scrub import SCRUB as SCRUB
    from ofmu_pl.modules.sparse import L1Sparse as L1Sparse
    from ofmu_pl.modules.weighted import WeightedAscent as WeightedAscent
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
