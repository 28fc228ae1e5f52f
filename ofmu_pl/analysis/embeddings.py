"""Embeddings of samples, and their likeness between two models (paper, appendix "Embedding Alignment with Retrain")."""

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from ofmu_pl.losses import IGNORED
from ofmu_pl.networks.adapters import below
from ofmu_pl.networks.base import Batch, Network, evaluating
from ofmu_pl.support.errors import UserError


def embed(recipe: Network, module: nn.Module, batches: Iterable[Batch]) -> Tensor:
    """Compute embeddings of samples, (N, d) float64, on the CPU.

    The paper does not say which. For text it is the mean of the last layer's hidden states (after the final norm) over
    the answer's tokens, its end token included, as in the loss; for an image it is the input of the last linear layer.
    """
    embed = _text if recipe.modality == "text" else _image
    with evaluating(module), torch.no_grad():
        parts = [embed(module, batch).double().cpu() for batch in batches]
    if not parts:
        raise UserError("There is no sample to embed: give the data a forget split that holds rows.")
    return torch.cat(parts)


def cosine(first: Tensor, second: Tensor) -> np.ndarray:
    """Cosines of two models' embeddings of the same samples, (N,); 0 where one is the zero vector.

    Hidden states share a large common direction, so unrelated models of one family are far from orthogonal: read a
    cosine beside the target's own.

    >>> cosine(torch.tensor([[1.0, 0.0], [2.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 0.0]
    """
    if first.shape != second.shape:
        raise UserError(
            f"Embeddings of shapes {tuple(first.shape)} and {tuple(second.shape)} cannot be compared: give two models "
            "of the same architecture, on the same samples."
        )
    return F.cosine_similarity(first.double(), second.double(), dim=1).numpy()


def _text(model: PreTrainedModel, batch: Batch) -> Tensor:
    body = below(model).base_model  # under adapters too; no logits are made
    states = body(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False)
    mask = (batch["labels"] != IGNORED).unsqueeze(2)
    return (states.last_hidden_state.double() * mask).sum(1) / mask.sum(1).clamp(min=1)


def _image(module: nn.Module, batch: Batch) -> Tensor:
    last = [m for m in module.modules() if isinstance(m, nn.Linear)][-1]
    kept: list[Tensor] = []
    with last.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0])):
        module(batch["images"])
    return kept[0]
