"""The base of first-order methods: a forget term and a retain term, weighed and descended together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, zeros_like
from ofmu_pl.data.base import ALTERNATIVE
from ofmu_pl.losses import IGNORED, hidden_distance, kl
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.modules.frozen import Frozen
from ofmu_pl.modules.reference_scores import reference_nll
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.networks.hidden import hidden_states
from ofmu_pl.support.errors import UserError


class TwoTerms(UnlearningModule):
    """Descends ``gamma mean(forget losses) + alpha mean(retain losses)``; a subclass defines the forget losses.

    Args:
        network: Recipe of the network that shall forget.
        gamma: Weight of the forget term.
        alpha: Weight of the retain term; 0 leaves out both the term and the retain batches.
        retain_loss: ``nll``, or distance to the frozen model: ``kl`` of its answers, ``embedding`` of hidden states.
        layer: Name of the module whose output hidden states are taken from, for example ``model.layers.7``.
        kwargs: See ``UnlearningModule``.
    """

    per_item_reference: tuple[str, ...] = ()
    """Streams whose answers' losses under the frozen model are needed; they are computed once and cached."""
    forget_gradients: int = 1
    """Number of batches that ``forget_losses`` differentiates."""
    frozen_in_forget_term: bool = False
    """Whether ``forget_losses`` runs the frozen model."""

    def __init__(
        self,
        network: Network,
        gamma: float = 1.0,
        alpha: float = 1.0,
        retain_loss: Literal["nll", "kl", "embedding"] = "nll",
        layer: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(network, **kwargs)
        if gamma < 0 or alpha < 0:
            raise UserError(f"gamma={gamma} and alpha={alpha} are weights of losses: set both to 0 or more.")
        if retain_loss == "embedding" and layer is None:
            raise UserError("The retain loss 'embedding' needs a layer: set --model.layer, such as model.layers.7.")
        if retain_loss == "embedding":
            self.modality = "text"  # type: ignore[misc]
        self.gamma, self.alpha, self.retain_loss, self.layer = gamma, alpha, retain_loss, layer
        self.reference_nll: dict[str, Tensor] = {}
        self._frozen = Frozen()  # no module, so that Lightning neither saves nor moves nor trains it
        self._gradient_evaluations = 0.0

    @property
    def retains(self) -> bool:
        """Whether there is a retain term."""
        return self.alpha > 0

    @property
    def streams(self) -> tuple[str, ...]:
        """Forget batches, retain batches if there is a retain term, and other answers if the method needs them."""
        alternative = (ALTERNATIVE,) if ALTERNATIVE in self.per_item_reference else ()
        return ("forget", *(("retain",) if self.retains else ()), *alternative)

    @property
    def gradient_evaluations(self) -> float:
        """Gradients of one batch's loss; a forward pass of the frozen model counts a third."""
        return self._gradient_evaluations

    @abstractmethod
    def forget_losses(self, part: Batch) -> Tensor:
        """Losses of a micro-batch, (b,), whose descent is forgetting."""

    def retain_losses(self, part: Batch) -> Tensor:
        """Losses of a micro-batch, (b,), whose descent is retaining."""
        if self.retain_loss == "nll":
            return self.recipe.sample_losses(self.trained, part)
        if self.retain_loss == "kl":
            with self.frozen() as reference:
                goal = self.recipe.logits(reference, part)[0]
            return kl(*self.recipe.logits(self.trained, part), goal)
        with self.frozen() as reference:
            goal = hidden_states(reference, part, str(self.layer))
        return hidden_distance(hidden_states(self.trained, part, str(self.layer)), goal, part["labels"] != IGNORED)

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Add the gradients of both terms, micro-batch by micro-batch."""
        parameters = trainable(self.trained)
        engine = self.gradient_engine()
        gradient = zeros_like(parameters)
        self.prepare(batch)
        with self.recipe.statistics(self.trained, "forget"):
            forget = engine.add_gradient(gradient, self.gamma, self.mean(batch["forget"][0], self.forget_losses))
        scalars = {"L_f": forget}
        if self.retains:
            weight = self.retain_weight()
            with self.recipe.statistics(self.trained, "retain"):
                loss = engine.add_gradient(gradient, weight, self.mean(batch["retain"][0], self.retain_losses))
            scalars["L_r" if self.retain_loss == "nll" else self.retain_loss] = loss
            self.after_retain(loss)
        self._gradient_evaluations += engine.gradient_evaluations + self.forget_gradients - 1 + self.frozen_passes / 3
        return gradient, scalars

    def prepare(self, batch: dict[str, list[Batch]]) -> None:
        """Keep what ``forget_losses`` needs besides its micro-batch."""

    def retain_weight(self) -> float:
        """The retain term's weight in this iteration: alpha, unless a subclass changes it."""
        return self.alpha

    def after_retain(self, loss: float) -> None:
        """Called with the batch's retain loss, for subclasses whose weight follows it."""

    # The frozen model ------------------------------------------------------------------------------------------------

    @property
    def frozen_passes(self) -> int:
        """Number of terms that run the frozen model beside the trained one."""
        return self.frozen_in_forget_term or (self.retains and self.retain_loss != "nll")

    def configure_model(self) -> None:
        """Make the network, and remember the random state that it is made from."""
        if self.network is None:
            self._frozen.random_state = torch.get_rng_state()
        super().configure_model()

    @contextmanager
    def frozen(self) -> Iterator[Any]:
        """The model as it was before the first step, without gradients: the base under adapters, or the frozen copy."""
        model: Any = self.trained
        with torch.no_grad():
            if self.recipe.adds_adapters:
                with model.disable_adapter():
                    yield model
            else:
                assert self._frozen.network is not None, "a method says in frozen_in_forget_term that it needs it"
                yield self._frozen.network

    def on_train_start(self) -> None:
        """Make the frozen copy and score the answers where they are needed, once; checkpoints keep the scores."""
        if self.frozen_passes and not self.recipe.adds_adapters:
            self._frozen.take(self._build_copy, self.trained, self.device)
        for stream in self.per_item_reference:
            if stream not in self.reference_nll:
                self.reference_nll[stream] = reference_nll(self.trained, self.recipe, self.run.data, stream)

    def _build_copy(self) -> nn.Module:
        return self.run.convert(self.recipe.build(self.run.data, exact=False))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the frozen model's scores and the state to make it from again: its weights are gone."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["two_terms"] = {
            "frozen": self._frozen.state_dict(),
            "reference_nll": self.reference_nll,
            "gradient_evaluations": self._gradient_evaluations,
        }

    def go_on_from(self, checkpoint: dict[str, Any]) -> None:
        """Restore the frozen model and its scores from a checkpoint."""
        self._frozen.load_state_dict(checkpoint["two_terms"]["frozen"])
        self.reference_nll = checkpoint["two_terms"]["reference_nll"]
        self._gradient_evaluations = checkpoint["two_terms"]["gradient_evaluations"]
