"""What the ranks of a run share: each scores its part, and all get everything."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from transformers import PreTrainedModel

from ofmu_pl.support.errors import UserError


def refuse_broken(what: str, broken: dict[str, int], scores: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Refuse a model that gives numbers that are not finite, by how many rows of each set have some."""
    counts = ", ".join(f"{n} of {len(scores[name].ids)} in {name}" for name, n in broken.items() if n)
    if counts:
        raise UserError(
            f"The model's {what} are not finite ({counts}): its weights are broken, or overflow in {dtype}, so give a "
            "sound checkpoint or float32 weights."
        )


def own_share() -> slice:
    """The rows of this rank: every n-th, where there are n ranks."""
    return slice(dist.get_rank(), None, dist.get_world_size()) if dist.is_initialized() else slice(None)


def one_token(model: PreTrainedModel) -> Callable[[], object]:
    """The least pass of a language model, for ranks that must make one and have no row (``training.together``)."""
    return partial(model, input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), use_cache=False)
