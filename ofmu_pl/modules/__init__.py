"""Methods as LightningModules, one class a file."""

from ofmu_pl.modules.finetune import FineTune
from ofmu_pl.modules.ofmu import OFMU

__all__ = ["OFMU", "FineTune"]
