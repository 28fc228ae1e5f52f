"""What a language model says at a batch's tokens, without the logits of all of them at once.

The logits of a row of 512 tokens among 128,256 take 263 MB in float32, and a loss needs several tensors as large. So a
model's output layer is called on some hidden states at a time, at places with a target alone. For the gradient
``torch.utils.checkpoint`` makes a chunk's logits again. Where the output layer is frozen, as beside adapters, they are
not needed again: a chunk's gradient by its states, (n, d), is taken at once. Both have derivatives of every order.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.utils.checkpoint import checkpoint

from ofmu_pl.losses import IGNORED, sample_mean

CHUNK = 2**25
"""Logits that are made at a time, 128 MiB in float32; several tensors as large stand beside them."""
SHARE = 1.0
"""Least size of a chunk's logits under a trained output layer, in sizes of that layer: each chunk adds such a gradient
to that of the chunks before it, so that smaller ones would take time and spare no memory."""
AFTER_HEAD = {"final_logit_softcapping", "logits_soft_cap", "logit_scale", "logits_scaling", "output_multiplier"}
AFTER_HEAD |= {"lm_head_multiplier"}
"""Fields of configurations whose models change what their output layer gives."""

_splits: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


class Predictions:
    """What a network says at S places of B rows, as hidden states whose logits are made when they are needed.

    Args:
        states: Hidden states, (B, S, d), or the logits themselves, (B, S, V).
        head: Makes logits, (n, V), of n states, (n, d); ``None``: they are logits.
        vocabulary: Number V of logits at a place; needed with ``head``.
        trained: Whether logits depend on what is trained by more than the states.

    Example:
        >>> from ofmu_pl.losses import token_nll
        >>> said = Predictions(torch.zeros(1, 3, 2), nn.Linear(2, 5, bias=False), vocabulary=5)
        >>> said.values(token_nll, torch.tensor([[IGNORED, 4, 0]])).tolist()
        [[0.0, 1.6094379425048828, 1.6094379425048828]]
    """

    def __init__(
        self,
        states: Tensor,
        head: Callable[[Tensor], Tensor] | None = None,
        vocabulary: int = 0,
        trained: bool = True,
    ) -> None:
        self.states, self.head, self.vocabulary = states, head, vocabulary or states.shape[-1]
        self.trained = trained

    def logits(self) -> Tensor:
        """All logits, (B, S, V)."""
        return self._logits(self.states.flatten(0, 1)).view(*self.states.shape[:2], -1)

    def values(self, function: Callable[..., Tensor], targets: Tensor, *others: "Predictions") -> Tensor:
        """A function of the logits at each place, 0 where there is no target, a chunk of places at a time.

        Args:
            function: A loss (``ofmu_pl.losses``): maps logits (n, 1, V), targets (n, 1) and the ``others``' logits to n
                values, (n,) or (n, 1), or to k of each place, (n, k).
            targets: (B, S).
            others: What other networks say at the same places.

        Returns:
            (B, S), or (B, S, k), with a graph of every order.
        """
        flat = targets.flatten()
        places = (flat != IGNORED).nonzero()[:, 0]

        def chunk(some: Tensor, states: Tensor) -> Tensor:
            goals = [x._logits(x._at(some)).unsqueeze(1) for x in others]
            found = function(self._logits(states).unsqueeze(1), flat[some].unsqueeze(1), *goals)
            return found if found.dim() > 1 else found.unsqueeze(1)

        least = round(SHARE * self.states.shape[2]) if self.trained and self.head is not None else 1
        chunks = places.split(max(1, least, CHUNK // self.vocabulary))
        found = []
        for some in chunks:
            states = self._at(some)
            # The backward pass begins with the last chunk: to keep its logits until then takes no more than it does.
            kept = len(chunks) == 1 or (self.trained and some is chunks[-1])
            if kept or not torch.is_grad_enabled():
                found.append(chunk(some, states))
            elif self.trained:  # nothing is drawn in an output layer
                found.append(checkpoint(chunk, some, states, use_reentrant=False, preserve_rng_state=False))
            else:
                found.append(_ByStates.apply(partial(chunk, some), states))
        values = torch.cat(found)
        everywhere = values.new_zeros(len(flat), values.shape[1]).index_copy(0, places, values)
        return everywhere.view(*targets.shape, -1) if values.shape[1] > 1 else everywhere.view(targets.shape)

    def mean(self, loss: Callable[..., Tensor], targets: Tensor, *others: "Predictions") -> Tensor:
        """Means of ``values`` over each row's targets, (B,)."""
        return sample_mean(self.values(loss, targets, *others), targets)

    def within(self, context: Callable[[], AbstractContextManager[object]]) -> "Predictions":
        """The same, whose logits are each time made in a context of that kind."""
        head = self.head
        if head is None:
            return self

        def inside(states: Tensor) -> Tensor:
            with context():
                return head(states)

        return Predictions(self.states, inside, self.vocabulary, self.trained)

    def _at(self, places: Tensor) -> Tensor:
        """States of some places, by number in their order, (n, d)."""
        flat = self.states.flatten(0, 1)
        return flat[places] if len(places) < len(flat) else flat

    def _logits(self, states: Tensor) -> Tensor:
        return states if self.head is None else self.head(states)


class _ByStates(torch.autograd.Function):
    """A function (n, k) of states, (n, d), each of which changes its own row alone.

    The derivatives by the states, (n, k, d), are found in the forward pass; further ones compute the function again.
    """

    @staticmethod
    def forward(ctx: Any, function: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
        kind = states.device.type
        ctx.function, ctx.casts = function, (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        with torch.enable_grad():
            x = states.detach().requires_grad_()
            columns = function(x).unbind(1)
        each = [torch.autograd.grad(v, x, torch.ones_like(v), retain_graph=True)[0] for v in columns]
        ctx.save_for_backward(states, torch.stack(each, 1))
        return torch.stack(columns, 1).detach()

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[None, Tensor]:
        states, slopes = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return None, (weights.unsqueeze(2) * slopes).sum(1).to(states.dtype)
        with torch.autocast(*ctx.casts):
            values = ctx.function(states)
        return None, torch.autograd.grad(values, states, weights, create_graph=True)[0]


def predict(model: Any, **inputs: Any) -> Predictions:
    """Run a causal language model; its output layer runs later, unless the model does more with logits.

    A model's first call compares logits of the first place with what the output layer makes of its states.

    Args:
        model: A Hugging Face causal language model, with adapters or without.
        inputs: What it is called with, once; a model that does more with logits is called twice the first time.
    """
    head = _output_layer(model)
    if head is None or _splits.get(model) is False:
        return Predictions(model(**inputs).logits)
    states, logits = _run(model, head, 0 if model in _splits else 1, **inputs)
    if model not in _splits:
        _splits[model] = _makes(head, states, logits)
        if not _splits[model]:
            return Predictions(model(**inputs).logits)
    said, trained = states[0], any(p.requires_grad for p in head.parameters())
    if isinstance(model, FSDPModule):
        said = said + logits[:, :0].sum()  # nothing; FSDP2 sums gradients once the backward pass has come to its output
    return Predictions(said, head, logits.shape[-1], trained)


def _output_layer(model: Any) -> nn.Module | None:
    found = getattr(model, "get_output_embeddings", lambda: None)()
    fields = model.config.get_text_config() if found is not None else None
    return None if any(getattr(fields, name, None) not in (None, 1) for name in AFTER_HEAD) else found


@torch.no_grad()
def _makes(head: nn.Module, states: list[Tensor], logits: Tensor) -> bool:
    """Whether logits, (B, 1, V), are exactly what an output layer makes of the first of the states that it has seen."""
    if len(states) != 1 or states[0].dim() != 3 or logits.shape[:2] != (len(states[0]), 1):
        return False
    return bool((head(states[0][:, :1]) == logits).all())


def _run(model: Any, head: nn.Module, places: int, **inputs: Any) -> tuple[list[Tensor], Tensor]:
    """Run a model whose output layer sees the first places alone; returns what it would have seen, and the logits."""
    states = []

    def cut(module: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        states.append(args[0])
        return args[0][:, :places]

    with head.register_forward_pre_hook(cut):
        return states, model(**inputs).logits
