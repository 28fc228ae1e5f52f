"""A method without a trainer: a direction from batches, and one guarded step along it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import Loss, running_statistics, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.vectors import Vector, scale_
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.descent import check_direction, descend, diverged
from ofmu_pl.training.parallel import Replica
from ofmu_pl.training.record import peak_memory
from ofmu_pl.training.run import Run


class Method(ABC):
    """Declares what a subclass of ``UnlearningModule`` says of itself, and offers what it can do with network and run.

    Attributes:
        run: What the method may know of the run that it is part of.
        recipe: The recipe of the network.
        network: The network to train, once it is made.
        replica: A whole copy of the network where ranks hold shards of it; it is no module, so that Lightning neither
            saves nor moves it.
        gradient_clip: Largest norm of the gradient that the optimizer gets; ``None``: as it is.
        micro_batch_size: Samples differentiated at a time; ``None``: all.
    """

    _gradient_evaluations: float
    run: Run
    recipe: Network
    network: nn.Module | None
    replica: Replica | None
    gradient_clip: float | None
    micro_batch_size: int | None

    takes_whole_iterations: ClassVar[bool] = True
    """Tells the data that one item of the loader is one counted step, and that every rank picks its own rows of it."""

    modality: ClassVar[Literal["text", "images"] | None] = None
    """The only kind of data that the method works on; ``None``: any."""

    moves_parameters: ClassVar[bool] = False
    """Whether ``iterate`` moves the parameters before the optimizer does."""

    in_words: str = "The model was trained by a method that does not say in plain words what it does."
    """What the method did, in two sentences for people who do not know the field, for the page that they sign."""

    # What a subclass says ------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def streams(self) -> tuple[str, ...]:
        """The splits that batches are drawn from; the first of them sets the length of an epoch."""

    @property
    def unlearns(self) -> bool:
        """Whether the method makes a model forget (and so is compared with a retrained model)."""
        return True

    @property
    def watches_never_seen(self) -> bool:
        """Whether the method looks at held-out rows, which tests then compare with, to say how far to forget."""
        return False

    @property
    def num_batches(self) -> int:
        """Number of batches of each stream that one outer iteration uses."""
        return 1

    @property
    def period(self) -> int:
        """Number of outer iterations after which their work repeats."""
        return 1

    @property
    def exact(self) -> bool:
        """Whether the network must be differentiable three times by autograd."""
        return False

    @property
    def gradient_evaluations(self) -> float:
        """Work so far, in gradients of one batch's loss, over all resumed parts of the run."""
        return self._gradient_evaluations

    def charge(self, gradients: float, rows: int | None = None) -> None:
        """Count work, in gradients of one batch's loss; a pass without a gradient is a third.

        Args:
            gradients: Number of them.
            rows: Number of rows that they are of; ``None``: a batch's.
        """
        self._gradient_evaluations += gradients * (1.0 if rows is None else rows / self.run.data.batch_size)

    @abstractmethod
    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Run one outer iteration up to the optimizer's step.

        Args:
            batch: ``num_batches`` batches for each of ``streams``.

        Returns:
            The gradient to descend along, and scalars to log (the retain loss, if there is one, as ``L_r``).
        """

    def own_optimizers(self) -> list[Optimizer]:
        """Make the optimizers that ``iterate`` steps by itself, beside the first one."""
        return []

    @property
    def inner_optimizers(self) -> list[Optimizer]:
        """The optimizers that ``iterate`` steps by itself."""
        return self.run.optimizers[1:]

    @property
    def remedy(self) -> str:
        """What to try after a divergence."""
        return "lower the learning rate or set `gradient_clip`"

    # What it can do ------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device of the network."""

    def outer_step(self, batch: dict[str, list[Batch]], number: int, *, epoch_ends: bool = False) -> dict[str, float]:
        """Run one outer iteration without a trainer, for the first time or once more on smaller micro-batches.

        Args:
            batch: The batches that ``iterate`` takes.
            number: Number of the iteration in the run, from 1.
            epoch_ends: Whether the iteration is the last of its epoch.

        Returns:
            Scalars to log.

        Raises:
            DivergedError: A loss, the gradient or the weights are out of all bounds.
        """
        started = time.perf_counter()
        self.run.step, self.run.epoch_ends = number, epoch_ends
        if self.exact:
            self.whole_network()
        elif self.replica is not None:
            self.replica.rest()
        try:
            gradient, scalars = self.iterate(batch)
        except ZeroDivisionError as error:
            raise diverged(self, "a gradient vanished, so the similarity does not exist") from error
        self._share_statistics()
        check_direction(self, gradient, scalars)
        self.descend(gradient)
        scalars["gradient_evaluations"] = self.gradient_evaluations
        scalars["seconds"] = time.perf_counter() - started
        scalars["peak_memory_GB"] = peak_memory(self.device) / 1e9
        return scalars

    @property
    def trained(self) -> nn.Module:
        """The network as it is differentiated, once it is made."""
        assert self.network is not None, "configure_model has not run"
        return self.replica.network if self.replica and self.exact else self.network

    def mean(self, batch: Batch, sample_values: Callable[[Batch], Tensor]) -> Loss:
        """The batch's mean of a value of each sample, as one term per micro-batch.

        Args:
            batch: One batch of a stream.
            sample_values: Maps a micro-batch of b samples to (b,) values.

        Raises:
            UserError: A rank has no row by which BatchNorm's statistics would move.
        """

        def term(part: Batch, size: int) -> Tensor:
            with self.run.forward_context():
                return sample_values(part).sum() / size

        size, ranks = len(next(iter(batch.values()))), self.run.ranks.size
        if size < ranks and any(m.training and running_statistics(m) for m in self.trained.modules()):
            raise UserError(
                f"A batch of {size} rows leaves some of {ranks} ranks without any, and each moves BatchNorm's "
                "statistics by its own: raise --data.batch_size, take fewer devices, or set bn_mode frozen."
            )
        mine = self.run.ranks.share(batch)
        if len(next(iter(mine.values()))) == 0:
            return []
        parts = self.recipe.split(mine, self.micro_batch_size)
        return [partial(term, part, size) for part in parts]

    def loss(self, batch: Batch, transform: Callable[[Tensor], Tensor] = lambda losses: losses) -> Loss:
        """The batch's mean loss; ``transform`` maps the samples' losses, (b,) to (b,), before the mean."""
        return self.mean(batch, lambda part: transform(self.recipe.sample_losses(self.trained, part)))

    def gradient_engine(self) -> FiniteDifference:
        """Make the engine of plain gradients, which every kernel, checkpointing and sharding supports."""
        return FiniteDifference(trainable(self.trained), ranks=self.run.ranks)

    def whole_network(self) -> nn.Module:
        """The network to be measured; where ranks hold shards of it, a whole copy on each (takes all ranks)."""
        assert self.network is not None, "configure_model has not run"
        return self.network if self.replica is None else self.replica.of(self.network, self.device)

    def weights_changed(self) -> None:
        """Note that whole copies of the network are out of date."""
        if self.replica is not None:
            self.replica.stale = True

    def _share_statistics(self) -> None:
        """Give all ranks the mean of BatchNorm's running statistics where each has moved its own by its own rows."""
        ranks = self.run.ranks
        if ranks.size == 1 or getattr(self.recipe, "bn_mode", "frozen") == "frozen":
            return
        statistics = [x for x in running_statistics(self.trained) if x.is_floating_point()]
        if statistics:
            ranks.sum_(statistics)
            scale_(statistics, 1 / ranks.size)

    def descend(self, gradient: Vector) -> None:
        """Take one counted step of the optimizer against ``gradient``; raises where the weights run away."""
        descend(self, gradient)
