"""Methods as LightningModules."""

from ofmu_pl.modules.distillation import CEU, UNDIAL
from ofmu_pl.modules.finetune import FineTune
from ofmu_pl.modules.fisher import Fisher
from ofmu_pl.modules.graddiff import GradDiff
from ofmu_pl.modules.influence import Influence
from ofmu_pl.modules.ofmu import OFMU
from ofmu_pl.modules.one_shot import BatchNormOnly, DoNothing
from ofmu_pl.modules.pdu import PDU
from ofmu_pl.modules.preference import DPO, NPO, SimNPO
from ofmu_pl.modules.relabel import RandomLabels, SalUn
from ofmu_pl.modules.rmu import RMU
from ofmu_pl.modules.scrub import SCRUB
from ofmu_pl.modules.sparse import L1Sparse
from ofmu_pl.modules.weighted import WeightedAscent

__all__ = [
    "CEU",
    "DPO",
    "NPO",
    "OFMU",
    "PDU",
    "RMU",
    "SCRUB",
    "UNDIAL",
    "BatchNormOnly",
    "DoNothing",
    "FineTune",
    "Fisher",
    "GradDiff",
    "Influence",
    "L1Sparse",
    "RandomLabels",
    "SalUn",
    "SimNPO",
    "WeightedAscent",
]
