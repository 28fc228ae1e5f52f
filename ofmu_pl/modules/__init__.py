"""Methods as LightningModules."""

from ofmu_pl.modules.distillation import CEU, UNDIAL
from ofmu_pl.modules.finetune import FineTune
from ofmu_pl.modules.graddiff import GradDiff
from ofmu_pl.modules.ofmu import OFMU
from ofmu_pl.modules.pdu import PDU
from ofmu_pl.modules.preference import DPO, NPO, SimNPO
from ofmu_pl.modules.rmu import RMU
from ofmu_pl.modules.weighted import WeightedAscent

__all__ = ["CEU", "DPO", "NPO", "OFMU", "PDU", "RMU", "UNDIAL", "FineTune", "GradDiff", "SimNPO", "WeightedAscent"]
