"""What a method says of itself, and what one outer iteration of it does: no hook of Lightning's is here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import Loss, running_statistics, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.vectors import Vector, scale_
from ofmu_pl.losses import IGNORED, token_nll
from ofmu_pl.modules.ending import Ending
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.descent import Runaway, check_direction, descend, diverged
from ofmu_pl.training.parallel import Replica, reshard
from ofmu_pl.training.run import Run


class Iteration(ABC):
    """One outer iteration: a subclass turns batches into a direction, and the guarded step along it is taken here."""

    run: Run
    recipe: Network
    network: nn.Module | None
    replica: Replica | None
    gradient_clip: float | None
    micro_batch_size: int | None
    device: torch.device
    ending: Ending
    _gradient_evaluations: float = 0.0

    # What a subclass says ------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def streams(self) -> tuple[str, ...]:
        """The splits that batches are drawn from; the first of them sets the length of an epoch."""

    unlearns: bool = True
    """Whether the method makes a model forget (and so is compared with a retrained model)."""
    num_batches: int = 1
    """Number of batches of each stream that one outer iteration uses."""
    period: int = 1
    """Number of outer iterations after which their work repeats."""
    exact: bool = False
    """Whether the network must be differentiable three times by autograd."""
    moves_parameters: bool = False
    """Whether ``iterate`` moves the parameters before the optimizer does."""

    @property
    def watches_held_out(self) -> bool:
        """Whether the run looks at held-out rows, which tests then compare with, to say how far to forget."""
        return self.ending.looks

    @property
    def compares(self) -> bool:
        """Whether the method itself compares forget with held-out rows (``reached``)."""
        return False

    def reached(self, number: int) -> tuple[bool, dict[str, float]]:
        """Whether forget rows are where they are to end, and what was seen; no look is due in most iterations."""
        if self.ending.watch is None:
            return False, {}
        with self.scoring():
            return self.ending.watch.check(number)

    @property
    def gradient_evaluations(self) -> float:
        """Work so far, in gradients of one batch's loss, over all resumed parts of the run."""
        return self._gradient_evaluations

    def charge(self, gradients: float, rows: int | None = None) -> None:
        """Count work, in gradients of the loss of so many rows (a batch's); a pass without a gradient is a third."""
        self._gradient_evaluations += gradients * (1.0 if rows is None else rows / self.run.data.batch_size)

    @abstractmethod
    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Run one outer iteration up to the optimizer's step.

        Args:
            batch: ``num_batches`` batches for each of ``streams``.

        Returns:
            The gradient to descend along, and scalars to log (the retain loss, if there is one, as ``L_r``).
        """

    def own_optimizers(self, outer: Optimizer) -> list[Optimizer]:
        """Make the optimizers that ``iterate`` steps by itself, beside the first one, ``outer``."""
        return []

    @property
    def inner_optimizers(self) -> list[Optimizer]:
        """The optimizers that ``iterate`` steps by itself."""
        return self.run.optimizers[1:]

    @property
    def remedy(self) -> str:
        """What to try after a divergence."""
        return "lower the learning rate or set model.gradient_clip"

    # What it can do ------------------------------------------------------------------------------------------------

    def outer_step(self, batch: dict[str, list[Batch]], number: int) -> dict[str, float]:
        """Run outer iteration ``number``, from 1, up to its step, for the first time or again; returns scalars to log.

        Raises:
            DivergedError: A loss, the gradient or the weights are out of all bounds.
        """
        self.run.step = number
        self.ending.begin(self)
        if self.exact:
            self.whole_network()
        try:
            gradient, scalars = self.iterate(batch)
            self._share_statistics()
            check_direction(gradient, scalars, self.gradient_clip, self.recipe.uniform_loss(self.trained))
            self.weights_changed()
            self.descend(gradient, **self.step_arguments(scalars))
        except (ZeroDivisionError, Runaway) as error:
            vanished = isinstance(error, ZeroDivisionError)
            what = "a gradient vanished, so the similarity does not exist" if vanished else str(error)
            raise diverged(type(self).__name__, self.run, what, self.remedy) from error
        return scalars

    @property
    def trained(self) -> nn.Module:
        """The network as it is differentiated, once it is made."""
        assert self.network is not None, "configure_model has not run"
        return self.replica.network if self.replica and self.exact else self.network

    def mean(self, batch: Batch, sample_values: Callable[[Batch], Tensor]) -> Loss:
        """The batch's mean of a value of each sample, (b,) of a micro-batch, as one term per micro-batch.

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
                "statistics by its own: raise data.batch_size, take fewer devices, or set model.network.bn_mode frozen."
            )
        mine = self.run.ranks.share(batch)
        if len(next(iter(mine.values()))) == 0:
            return []
        parts = self.recipe.split(mine, self.micro_batch_size)
        return [partial(term, part, size) for part in parts]

    def loss(self, batch: Batch, transform: Callable[[Tensor], Tensor] = lambda losses: losses) -> Loss:
        """The batch's mean loss; ``transform`` maps the samples' losses, (b,) to (b,), before the mean."""
        return self.mean(batch, lambda part: transform(self.recipe.sample_losses(self.trained, part)))

    def logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits and targets of rows, at the weights of now."""
        with self.run.forward_context():
            return self.recipe.logits(self.trained, {name: x.to(self.device) for name, x in batch.items()})

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same of rows that are looked at without a gradient, which count as work."""
        self.charge(1 / 3, len(batch["ids"]))
        return self.logits(batch)

    def token_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Losses of tokens, (b, S), and targets of rows that are looked at, a micro-batch at a time."""
        losses: list[Tensor] = []
        targets: list[Tensor] = []
        every = torch.arange(len(batch["ids"]))
        for places in every.split(self.micro_batch_size or len(every)):
            logits, labels = self.read({name: x[places] for name, x in batch.items()})
            losses += token_nll(logits, labels)
            targets += labels
        padded = pad_sequence(targets, batch_first=True, padding_value=IGNORED)
        return pad_sequence(losses, batch_first=True), padded

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """A context for ranks with shards: the exact engine's copy is made first, gathered layers are freed after."""
        if self.exact:
            self.whole_network()
        yield
        reshard(self.trained)

    def gradient_engine(self) -> FiniteDifference:
        """Make the engine of plain gradients, which every kernel, checkpointing and sharding supports."""
        return FiniteDifference(trainable(self.trained), ranks=self.run.ranks)

    def whole_network(self) -> nn.Module:
        """The network; where ranks hold shards of it, a whole copy on each (takes all ranks).

        The copy is on the host where the engine does not differentiate it.
        """
        assert self.network is not None, "configure_model has not run"
        device = self.device if self.exact else torch.device("cpu")
        return self.network if self.replica is None else self.replica.of(self.network, device)

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

    def step_arguments(self, scalars: dict[str, float]) -> dict[str, float]:
        """What the optimizer's step needs beside the gradient, of what the iteration measured."""
        return {}

    def descend(self, gradient: Vector, **given: float) -> None:
        """Take one counted step of the optimizer against ``gradient``; raises where the weights run away."""
        assert self.network is not None, "configure_model has not run"
        descend(self.run, self.network, self.trained, gradient, **given)
