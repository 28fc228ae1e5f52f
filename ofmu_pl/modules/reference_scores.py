"""Losses of answers under the frozen model, computed once so that preference methods hold no second model."""

import hashlib
import unicodedata
import zlib
from typing import Any

import torch
from torch import Tensor, nn

from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.networks.base import Network
from ofmu_pl.support.kept import cache_folder, content_path, keep, read_shared
from ofmu_pl.support.processes import from_first
from ofmu_pl.support.provenance import config_hash, versions, weights_hash
from ofmu_pl.training.parallel import reshard

ROWS = 32


def first_scores(method: UnlearningModule, split: str) -> Tensor:
    """``reference_nll`` of a split by a method's network before its first step, which counts as work."""
    run = method.run
    with run.forward_context():  # as the losses that they are compared with
        found = reference_nll(method.trained, method.recipe, run.data, split, run.precision)
    method.charge(1 / 3, len(found))  # also where an earlier run has kept them
    return found


def reference_nll(model: nn.Module, recipe: Network, data: TextDataModule, split: str, precision: str) -> Tensor:
    """Summed negative log-likelihood of every answer of a split, (N,) float64 nats, by position.

    The caller is in the forward context of ``precision``. Values are kept on disk by weights, rows, template and
    precision, and read by a second run on a target. The model is the network before its first step; its mode is kept.
    """
    path, folder = None, cache_folder()
    if folder is not None:
        path = content_path(folder, "nll", [facts_of(model, data), data.hashes[split], precision])
        stored = read_shared(path)
        if stored is not None:
            return torch.tensor(stored, dtype=torch.float64)
    rows = data.splits[split]
    device = next(model.parameters()).device
    encoded = data.encoded(split)
    order = sorted(range(len(rows)), key=lambda i: len(encoded[i].input_ids))
    values = torch.empty(len(rows), dtype=torch.float64)
    with torch.no_grad():
        for start in range(0, len(order), ROWS):
            index = order[start : start + ROWS]
            batch = data.collate(split, index, 0)
            nll, _ = recipe.token_losses(model, {k: v.to(device) for k, v in batch.items()})
            values[index] = nll.sum(1).double().cpu()
    reshard(model)
    if path is not None and values.isfinite().all():
        keep(path, values.tolist())
    return values


def facts_of(model: Any, data: TextDataModule) -> dict[str, Any]:
    """All that a whole Hugging Face language model's scores follow from, besides rows and settings (all ranks)."""
    parameter = next(model.parameters())
    return {
        "weights": weights_hash(model),
        "config": config_hash(model),
        "computes": computed(model),
        "dtype": str(parameter.dtype),
        "device": parameter.device.type,
        "products": torch.get_float32_matmul_precision(),  # of 10 bits on a GPU, where it is not the highest
        "template": data.encoder.template_hash,
        "versions": versions("torch", "transformers", "peft", "tokenizers", "rouge-score", "nltk"),
        "texts": [unicodedata.unidata_version, zlib.ZLIB_RUNTIME_VERSION],
    }


@torch.no_grad()
def computed(model: Any) -> str:
    """Hash of what a model says after a few tokens, by the first rank; takes all ranks.

    It sees what no list of inputs would: hooks, buffers that are not saved, adapters that are switched off. Attention
    is eager meanwhile, since kernels differ in rounding alone.
    """
    training, kernel, device = model.training, model.config._attn_implementation, next(model.parameters()).device
    model.set_attn_implementation("eager")
    logits = model.eval()(input_ids=torch.arange(8, device=device)[None], use_cache=False).logits
    model.train(training)
    model.set_attn_implementation(kernel)
    reshard(model)
    return from_first(lambda: hashlib.sha256(logits.float().cpu().numpy().tobytes()).hexdigest()[:16])
