"""The base of first-order methods: a forget term and a retain term, weighed and descended together."""

import copy
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import Loss, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.vectors import Vector, add_, copy_, norm, scale_, zeros_like
from ofmu_pl.data.base import ALTERNATIVE
from ofmu_pl.losses import IGNORED, hidden_distance, js, kl
from ofmu_pl.modules.base import Checkpoint, UnlearningModule
from ofmu_pl.modules.frozen import Frozen
from ofmu_pl.modules.rectify import SAUL, Rectifier
from ofmu_pl.modules.reference_scores import first_scores
from ofmu_pl.networks.adapters import without_adapters
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.networks.layers import hidden_states, share_up_to
from ofmu_pl.networks.predictions import Predictions
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.training.parallel import reshard

RetainLoss = Literal["nll", "kl", "js", "embedding"]
SAM_IN_WORDS = "Each step of forgetting was taken from where, near the present weights, least would be forgotten."
"""What ``sam_rho`` does, in one sentence for people who do not know the field."""


class TwoTerms(UnlearningModule):
    """Descends ``gamma mean(forget losses) + alpha mean(retain losses)``; a subclass defines the forget losses.

    Args:
        network: Recipe of the network that shall forget.
        gamma: Weight of the forget term.
        alpha: Weight of the retain term; 0 leaves out the term, and the retain batches unless ``rectify`` needs them.
        retain_loss: ``nll``, or distance to the frozen model: ``kl``, ``js`` of answers, ``embedding`` of states.
        layer: Name of the module whose output hidden states are taken from, for example ``model.layers.7``.
        rectify: ``BLUR``, ``GRU``, ``PCGrad`` or ``HAMU`` (``modules.rectify``): changes the terms' gradients by each
            other before they are added; ``null``: they are added as they are.
        constrain: ``SAUL``: the forget term weighs the more, the longer its loss is above a level; ``null``: always 1.
        sam_rho: Sharpness-aware minimisation: the forget term's gradient is that at ``theta + sam_rho g_f / |g_f|``, so
            that what was forgotten is also forgotten nearby (Fan et al. 2025: 0.01), at one more forget gradient an
            iteration; ``null``: the gradient at theta.
        kwargs: See ``UnlearningModule``.
    """

    per_item_reference: tuple[str, ...] = ()
    """Streams whose answers' losses under the frozen model are needed; they are computed once and cached."""
    forget_gradients: int = 1
    """Number of batches that ``forget_losses`` differentiates."""

    def __init__(
        self,
        network: Network,
        gamma: float = 1.0,
        alpha: float = 1.0,
        retain_loss: RetainLoss = "nll",
        layer: str | None = None,
        rectify: Rectifier | None = None,
        constrain: SAUL | None = None,
        sam_rho: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(network, **kwargs)
        check_range(0, gamma=gamma, alpha=alpha, sam_rho=sam_rho)
        if retain_loss not in get_args(RetainLoss):
            raise UserError(f"There is no model.retain_loss {retain_loss}: give {', '.join(get_args(RetainLoss))}.")
        if retain_loss == "embedding" and layer is None:
            raise UserError("The retain loss 'embedding' needs a layer: set model.layer, such as model.layers.7.")
        if retain_loss == "embedding":
            self.modality = "text"  # type: ignore[misc]
        if rectify is not None and rectify.changes_retain and alpha == 0:
            raise UserError(f"{type(rectify).__name__} changes the retain gradient: set model.alpha above 0.")
        self.gamma, self.alpha, self.retain_loss, self.layer = gamma, alpha, retain_loss, layer
        self.rectify, self.constrain = copy.copy(rectify), copy.copy(constrain)  # what they keep is this run's
        self.sam_rho = sam_rho
        words = [part.in_words for part in (constrain, rectify) if part]
        self.in_words = " ".join([self.in_words, *words, *([SAM_IN_WORDS] if sam_rho else [])])
        self.reference_nll: dict[str, Tensor] = {}
        self._frozen = Frozen()  # no module, so that Lightning neither saves nor moves nor trains it

    @property
    def frozen_in_forget_term(self) -> bool:
        """Whether ``forget_losses`` runs the frozen model, in the present iteration."""
        return False

    @property
    def retains(self) -> bool:
        """Whether the gradient of the retain loss is needed."""
        return self.alpha > 0 or self.rectify is not None

    @property
    def streams(self) -> tuple[str, ...]:
        """Forget batches, retain batches if there is a retain term, and other answers if the method needs them."""
        alternative = (ALTERNATIVE,) if ALTERNATIVE in self.per_item_reference else ()
        return ("forget", *(("retain",) if self.retains else ()), *alternative)

    @property
    def forget_work(self) -> float:
        """What the forget term's gradient costs, in gradients of one batch's loss."""
        return self.forget_gradients + self.frozen_in_forget_term / 3

    @property
    def retain_work(self) -> float:
        """What the retain term's gradient costs; the layers above the one that hidden states come from never run."""
        share = share_up_to(self.trained, str(self.layer)) if self.retain_loss == "embedding" else 1.0
        return share * (1 + (self.frozen_passes - self.frozen_in_forget_term) / 3)

    @abstractmethod
    def forget_losses(self, part: Batch) -> Tensor:
        """Losses of a micro-batch, (b,), whose descent is forgetting."""

    def retain_losses(self, part: Batch) -> Tensor:
        """Losses of a micro-batch, (b,), whose descent is retaining."""
        if self.retain_loss == "nll":
            return self.recipe.sample_losses(self.trained, part)
        if self.retain_loss in ("kl", "js"):
            distance = kl if self.retain_loss == "kl" else js
            said, targets = self.recipe.predict(self.trained, part)
            return said.mean(distance, targets, self.predict_frozen(part))
        with self.frozen() as reference:
            goal = hidden_states(reference, part, str(self.layer))
        return hidden_distance(hidden_states(self.trained, part, str(self.layer)), goal, part["labels"] != IGNORED)

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Add the gradients of both terms, micro-batch by micro-batch."""
        parameters = trainable(self.trained)
        engine = self.gradient_engine()
        gradient = zeros_like(parameters)
        with self.recipe.statistics(self.trained, "forget"):
            forget, there = self._add_forget(gradient, engine, self.mean(batch["forget"][0], self.forget_losses))
        scalars = {"L_f": forget}
        if self.constrain is not None:
            scalars["multiplier"] = self.constrain.update(there)
            scale_(gradient, scalars["multiplier"])
        if self.retains:
            # Apart where one of the two changes by the other, and unweighted: the weight may be 0.
            retain, share = (gradient, self.alpha) if self.rectify is None else (zeros_like(parameters), 1.0)
            with self.recipe.statistics(self.trained, "retain"):
                loss = engine.add_gradient(retain, share, self.mean(batch["retain"][0], self.retain_losses))
            scalars["L_r" if self.retain_loss == "nll" else self.retain_loss] = loss
            if self.rectify is not None:
                scalars["cosine"] = self.rectify.rectify_(gradient, retain)
                add_(gradient, [(self.alpha, retain)])
            self.after_retain(loss)
        if self._frozen.network is not None:
            reshard(self._frozen.network)
        forgets = 1 if self.sam_rho is None else 2
        self.charge(forgets * self.forget_work + (self.retain_work if self.retains else 0.0))
        return gradient, scalars

    def _add_forget(self, gradient: Vector, engine: FiniteDifference, loss: Loss) -> tuple[float, float]:
        """In place ``gradient += gamma g_f``, at theta or where SAM has it; returns the losses at theta and there."""
        if self.sam_rho is None:
            value = engine.add_gradient(gradient, self.gamma, loss)
            return value, value
        here = engine.expand(loss, order=1)
        size = norm(here.gradient)
        buffers = list(self.trained.buffers())
        statistics = [b.clone() for b in buffers]  # BatchNorm is to see a batch once
        with engine.displaced([(self.sam_rho / size, here.gradient)] if size else []):
            there = engine.add_gradient(gradient, self.gamma, loss)
        if buffers:
            copy_(buffers, statistics)
        return here.value, there

    def own_optimizers(self, outer: Optimizer) -> list[Optimizer]:
        """Make what the rectifier remembers."""
        return [] if self.rectify is None else self.rectify.memory(trainable(self.trained))

    def after_retain(self, loss: float) -> None:
        """Called with the batch's retain loss, for subclasses whose ``alpha`` follows it."""

    # The frozen model ------------------------------------------------------------------------------------------------

    @property
    def frozen_passes(self) -> int:
        """Number of terms that run the frozen model beside the trained one, in the present iteration."""
        return self.frozen_in_forget_term + (self.retains and self.retain_loss != "nll")

    def configure_model(self) -> None:
        """Make the network, and remember the random state that it is made from."""
        if self.network is None:
            self._frozen = Frozen()
        super().configure_model()

    @contextmanager
    def frozen(self) -> Iterator[nn.Module]:
        """The model as it was before the first step, without gradients: the base under adapters, or the frozen copy."""
        with torch.no_grad():
            if self.recipe.starts_from_base:
                with without_adapters(self.trained):
                    yield self.trained
            else:
                assert self._frozen.network is not None, "a method says in frozen_in_forget_term that it needs it"
                yield self._frozen.network

    def predict_frozen(self, part: Batch) -> Predictions:
        """What the frozen model says of a micro-batch, (b, S, V)."""
        with self.frozen() as reference:
            said = self.recipe.predict(reference, part)[0]
        return said.within(self.frozen)

    def before_rehearsal(self) -> None:
        """Zeros for the losses of rows under the target, which are kept on disk."""
        for stream in self.per_item_reference:
            self.reference_nll[stream] = torch.zeros(len(self.run.data.splits[stream]))

    def on_train_start(self) -> None:
        """Make the frozen copy and score the answers where they are needed, once; checkpoints keep the scores."""
        if self.frozen_passes and not self.recipe.starts_from_base:
            self._frozen.take(self.run, self.recipe, self.trained, self.device)
        for stream in self.per_item_reference:
            if stream not in self.reference_nll:
                self.reference_nll[stream] = first_scores(self, stream)

    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add the frozen model's scores and the state to make it from again: its weights are gone."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["two_terms"] = {"frozen": self._frozen.state_dict(), "reference_nll": self.reference_nll}
        checkpoint["two_terms"]["multiplier"] = self.constrain and self.constrain.multiplier

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Restore the frozen model and its scores from a checkpoint."""
        self._frozen.load_state_dict(checkpoint["two_terms"]["frozen"])
        self.reference_nll = checkpoint["two_terms"]["reference_nll"]
        if self.constrain is not None:
            self.constrain.multiplier = checkpoint["two_terms"]["multiplier"] or 0.0
