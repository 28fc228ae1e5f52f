"""The gradient-norm membership attack: rows that a model has learnt by heart have small gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from tqdm.auto import tqdm

from ofmu_pl.data.encoded import Row, collate
from ofmu_pl.data.text import Encoder
from ofmu_pl.losses import IGNORED, sample_mean, token_nll
from ofmu_pl.metrics import Scores
from ofmu_pl.networks.adapters import merged
from ofmu_pl.networks.language import answer_logits


def add_gradient_norms(
    model: Any, encoder: Encoder, sets: dict[str, list[Row]], scores: Scores, progress: bool = False
) -> None:
    """Fill ``gradient_norm`` of the forget and holdout scores: ``mean_p |d l_i / d theta_p|`` over tensors p.

    ``l_i`` is the answer's loss without its end mark, if it has one (as open-unlearning has it, one row at a time).
    With several ranks each differentiates a share. The tensors are all of the model that a run would export, whatever
    the run trains of them: else models that were trained in part, or by adapters, could not be compared with others.

    Args:
        model: A Hugging Face causal language model, perhaps with adapters, which are merged into a copy.
        encoder: Turns rows into tokens.
        sets: Rows by evaluation set.
        scores: Scores of these rows, changed in place.
        progress: Show a progress bar.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    model = merged(model)
    with _differentiable(model) as parameters:
        for name in ("forget", "holdout"):
            if name not in scores:
                continue
            ids = scores[name].ids
            norms = np.zeros(len(ids))
            for k in tqdm(range(rank, len(ids), world), desc=f"gradients, {name}", leave=False, disable=not progress):
                row = sets[name][ids[k]]
                encoded = encoder.encode_row(row)[0]
                batch = collate([encoded], [0], pad_id=0)
                batch["labels"][0, len(encoded.input_ids) - encoder.ends(encoded.input_ids) :] = IGNORED
                logits, targets = answer_logits(model, {key: x.to(model.device) for key, x in batch.items()})
                loss = sample_mean(token_nll(logits, targets), targets).mean()
                gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
                norms[k] = np.mean([0.0 if g is None else g.double().norm().item() for g in gradients])
            if world > 1:
                shares: list[Any] = [None] * world
                dist.all_gather_object(shares, norms)
                norms = np.sum(shares, axis=0)
            scores[name].gradient_norm = norms


@contextmanager
def _differentiable(model: Any) -> Iterator[list[Tensor]]:
    """A context of eval mode in which all parameters have gradients, but for those that are kept in 4 bits."""
    parameters = [p for p in model.parameters() if p.is_floating_point()]
    trained, training = [p.requires_grad for p in parameters], model.training
    model.eval()
    try:
        for p in parameters:
            p.requires_grad_()
        yield parameters
    finally:
        for p, was in zip(parameters, trained, strict=True):
            p.requires_grad_(was)
        model.train(training)
