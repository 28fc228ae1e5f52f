"""What is unlearned."""

from ofmu_pl.networks.language import CausalLM

__all__ = ["CausalLM"]
