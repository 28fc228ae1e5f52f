"""What fake tensors do not tell of a network's weights: those in 4 bits, and what the host holds of them."""

from torch import nn

from ofmu_pl.networks.base import Network
from ofmu_pl.networks.rounding import BLOCK, matrices


def quantized(recipe: Network, network: nn.Module) -> float:
    """Bytes that 4-bit weights save: a weight takes 4 bits and a 64th of a float32 scale, instead of a float32."""
    if not getattr(recipe, "load_in_4bit", False):
        return 0.0
    return (4 - 0.5 - 4 / BLOCK) * sum(w.numel() for _, w, _ in matrices(network) if not w.requires_grad)


def host(recipe: Network, network: nn.Module, held: float, sharded: bool) -> float:
    """Bytes of the host's memory that a process takes to load a network and to export it.

    Ranks of shards read their own rows, where they can, and export a matrix at a time. Any other process loads the
    whole network in float32, in 4 bits matrix by matrix; adapters are merged into a copy on the host.

    Args:
        recipe: The network's recipe.
        network: The network.
        held: Bytes of the parameters that the process holds.
        sharded: Whether they are a share of the network's.
    """
    sizes = [4.0 * p.numel() for p in network.parameters()]
    experts = any(p.dim() > 2 for p in network.parameters())  # which are not read by rows
    if sharded and recipe.reads_rows and not experts:
        return held + max(sizes)
    copied = held if getattr(recipe, "load_in_4bit", False) else sum(sizes)
    return held + copied if recipe.adds_adapters else copied
