"""The layers of a causal language model: hidden states between them, and the same model with other ones put in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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

    def read(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        kept.append(args[0] if args else kwargs["hidden_states"])

    def given(module: nn.Module, args: object, output: Any) -> None:
        kept.append(_hidden(output))

    handles = [layers[0].register_forward_pre_hook(read, with_kwargs=True)]
    handles += [layer.register_forward_hook(given) for layer in layers]
    try:
        model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False, logits_to_keep=1)
    finally:
        for handle in handles:
            handle.remove()
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

    def replace(module: nn.Module, args: object, output: Any) -> Any:
        new = hidden if where is None else torch.where(where[..., None], hidden, _hidden(output))
        return (new, *output[1:]) if isinstance(output, tuple) else new

    handle = layer.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()


def _hidden(output: Any) -> Tensor:
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden
