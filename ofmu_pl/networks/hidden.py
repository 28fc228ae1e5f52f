"""Hidden states of one layer, computed without the layers above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class _Reached(Exception):
    """Raised once the layer has run."""


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """Find the module of that name, also under the prefix that adapters put before it."""
    found = [module for path, module in model.named_modules() if path == name or path.endswith(f".{name}")]
    if not found:
        raise UserError(f"The network has no layer '{name}': set `layer` to one of its modules ({_numbered(model)}).")
    layer: nn.Module = found[0]
    return layer


def _numbered(model: nn.Module) -> str:
    """Names of the first and the last numbered module, for messages."""
    layers = [path for path, _ in model.named_modules() if path.rsplit(".", 1)[-1].isdigit()]
    return f"{layers[0]} ... {layers[-1]}" if layers else "no numbered layers"


def share_up_to(model: nn.Module, layer: str) -> float:
    """Share of a network's matrix products, and so of its work, up to a layer, without attention's products."""
    last = list(find_layer(model, layer).modules())[-1]
    sizes, up_to = [], 0
    for module in model.modules():
        weight = module._parameters.get("weight")
        sizes.append(0 if weight is None or weight.dim() < 2 or isinstance(module, nn.Embedding) else weight.numel())
        up_to = len(sizes) if module is last else up_to
    return sum(sizes[:up_to]) / max(1, sum(sizes))


def hidden_states(model: PreTrainedModel, batch: Batch, layer: str) -> Tensor:
    """Output of a layer, (B, S, d); the part of the network after it never runs."""
    kept: list[Any] = []

    def stop(module: nn.Module, args: object, output: Any) -> None:
        kept.append(output[0] if isinstance(output, tuple) else output)
        raise _Reached

    handle = find_layer(model, layer).register_forward_hook(stop)
    try:
        model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False)
    except _Reached:
        pass
    finally:
        handle.remove()
    if not kept or not isinstance(kept[0], Tensor) or kept[0].dim() != 3:
        raise UserError(
            f"'{layer}' gives no hidden states: set `layer` to one of the network's layers ({_numbered(model)})."
        )
    hidden: Tensor = kept[0]
    return hidden
