"""What is unlearned."""

from ofmu_pl.networks.language import CausalLM
from ofmu_pl.networks.vision import ResNet18, SmallCNN

__all__ = ["CausalLM", "ResNet18", "SmallCNN"]
