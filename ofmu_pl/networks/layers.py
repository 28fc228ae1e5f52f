"""The layers of a network: hidden states that they give, the model with others put in, and dropout that never acts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Output = Tensor | tuple[Tensor, ...]
"""What a layer gives: hidden states, in some architectures as the first of several tensors."""


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The L layers of a Hugging Face causal language model, in order."""
    n = model.config.get_text_config().num_hidden_layers
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == n:
            return list(module)
    raise UserError(
        f"'{type(model).__name__}' does not hold its {n} layers in one list, so they cannot be looked into: take a "
        "model of Llama's, Qwen's, Gemma's or GPT-2's kind."
    )


def all_hidden_states(model: PreTrainedModel, batch: Batch) -> list[Tensor]:
    """What the first layer reads and what each layer gives, L + 1 tensors (B, S, d).

    transformers' own ``hidden_states`` end with the final norm's output instead of the last layer's.
    """
    layers, kept = layers_of(model), []

    def read(module: nn.Module, args: tuple[Tensor, ...], kwargs: Batch) -> None:
        kept.append(args[0] if args else kwargs["hidden_states"])

    def given(module: nn.Module, args: object, output: Output) -> None:
        kept.append(_hidden(output))

    with ExitStack() as hooks:
        hooks.enter_context(layers[0].register_forward_pre_hook(read, with_kwargs=True))
        for layer in layers:
            hooks.enter_context(layer.register_forward_hook(given))
        model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False, logits_to_keep=1)
    return kept


@contextmanager
def patched(layer: nn.Module, hidden: Tensor, where: Tensor | None = None) -> Iterator[None]:
    """Put hidden states in the place of what a layer gives, meanwhile.

    The rest of the model runs as ever: after its last layer these are the final norm, the output head, and whatever
    else an architecture does with logits.

    Args:
        layer: One of ``layers_of``.
        hidden: (B, S, d) hidden states.
        where: (B, S) whether a position is replaced; ``None``: all are.
    """

    def replace(module: nn.Module, args: object, output: Output) -> Output:
        new = hidden if where is None else torch.where(where[..., None], hidden, _hidden(output))
        return (new, *output[1:]) if isinstance(output, tuple) else new

    with layer.register_forward_hook(replace):
        yield


def _hidden(output: Output) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


class _Reached(Exception):
    """Raised once the layer has run."""


def _find_layer(model: nn.Module, name: str) -> nn.Module:
    """Find the module of that name, also under the prefix that adapters put before it."""
    for path, module in model.named_modules():
        if path == name or path.endswith(f".{name}"):
            return module
    raise UserError(f"The network has no layer '{name}': set `layer` to one of its modules ({_numbered(model)}).")


def _numbered(model: nn.Module) -> str:
    """Names of the first and the last numbered module, for messages."""
    layers = [path for path, _ in model.named_modules() if path.rsplit(".", 1)[-1].isdigit()]
    return f"{layers[0]} ... {layers[-1]}" if layers else "no numbered layers"


def share_up_to(model: nn.Module, layer: str) -> float:
    """Share of a network's matrix products, and so of its work, up to a layer, without attention's products."""
    modules, sizes = list(model.modules()), []
    for module in modules:
        weight = module._parameters.get("weight")
        sizes.append(0 if weight is None or weight.dim() < 2 or isinstance(module, nn.Embedding) else weight.numel())
    last = list(_find_layer(model, layer).modules())[-1]
    return sum(sizes[: modules.index(last) + 1]) / max(1, sum(sizes))


def hidden_states(model: PreTrainedModel, batch: Batch, layer: str) -> Tensor:
    """Output of a layer, (B, S, d); the part of the network after it never runs."""
    kept: list[Tensor] = []

    def stop(module: nn.Module, args: object, output: Output) -> None:
        kept.append(_hidden(output))
        raise _Reached

    with _find_layer(model, layer).register_forward_hook(stop), suppress(_Reached):
        model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False)
    if not kept or not isinstance(kept[0], Tensor) or kept[0].dim() != 3:
        raise UserError(f"'{layer}' gives no hidden states: set `layer` to one that does ({_numbered(model)}).")
    return kept[0]


def silence_dropout(model: PreTrainedModel) -> dict[str, float]:
    """Switch dropout off for good: activation checkpointing works in train mode only, where it would act.

    Returns:
        What the configuration said, by field, so that an exported one can say it again.
    """
    said = _silenced(model.config)
    for module in model.modules():
        _silenced(module)
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return said


def _silenced(owner: object) -> dict[str, float]:
    """Set what functions and layers read of an object's attributes to 0, and return what they were."""
    found = {k: v for k, v in vars(owner).items() if "drop" in k and isinstance(v, float) and v > 0}
    for name in found:
        setattr(owner, name, 0.0)
    return found
