"""Methods as LightningModules: one ``training_step`` is one outer iteration and one counted optimizer step."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ofmu_pl.core.derivatives import Loss, running_statistics, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.preflight import check_precision
from ofmu_pl.core.vectors import Vector, scale_
from ofmu_pl.losses import IGNORED, token_nll
from ofmu_pl.modules.ending import LOOK_EVERY, Ending
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.networks.predictions import Predictions
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.training.checkpoints import NAMES, names_in, require_fit, require_same_data
from ofmu_pl.training.descent import (
    Runaway,
    built,
    check_direction,
    check_optimizer,
    descend,
    diverged,
    moments_of_embeddings,
)
from ofmu_pl.training.parallel import Replica, reshard
from ofmu_pl.training.record import RunRecord, peak_memory
from ofmu_pl.training.recovery import made_to_fit
from ofmu_pl.training.run import Run

Checkpoint = dict[str, Any]
"""A checkpoint as Lightning writes it."""


class UnlearningModule(pl.LightningModule, ABC):
    """Manual optimization with the counting, clipping, guarding and logging that all methods share.

    A subclass turns the batches of an iteration into a descent direction in ``iterate``; everything else happens here.
    The network is kept in eval mode (dropout off, frozen statistics): unlearning differentiates a function, not a
    distribution.

    Args:
        network: Recipe of the network to train.
        optimizer: Makes the optimizer of the parameters (the paper's experiments: AdamW at 1e-5); a ``class_path`` in
            files.
        scheduler: Makes the scheduler of the optimizer, stepped once per outer iteration; ``null``: constant rate.
        gradient_clip: Largest norm of the gradient that the optimizer gets (OFMU: of g_r in it); ``null``: as it is.
        micro_batch_size: Samples differentiated at a time, with the same result as all at once; ``null``: all. It is
            halved automatically where a GPU's memory does not suffice.
        stop_at: ``holdout``: end the run where forgotten rows can no longer be told from held-out ones and retain rows
            are kept (0.03 nats), by up to 64 rows of each side at every tenth iteration; ``null``: run all iterations.
        max_harm: Mean rise of retain rows' losses, in nats, at which the run ends; ``null``: at none.
        keep: ``best``: measure and export the weights nearest to held-out rows, of those with at most ``max_harm`` (0.3
            if ``null``), or else those of least harm; ``last``: the last weights.

    Raises:
        UserError: The network is no recipe, a number is out of range, or the optimizer or the scheduler refuses its
            options.

    Example:
        A method of your own is a direction from batches; this one ascends on the forget rows.

        >>> class Ascent(UnlearningModule):
        ...     streams = ("forget",)
        ...     def iterate(self, batch):
        ...         (part,) = batch["forget"]
        ...         self.charge(1.0)
        ...         up = self.gradient_engine().expand(self.loss(part), order=1)
        ...         return [-g for g in up.gradient], {"L_f": up.value}
        >>> from ofmu_pl import CausalLM
        >>> Ascent(CausalLM("gpt2"), micro_batch_size=8).num_batches
        1
    """

    takes_whole_iterations: ClassVar[bool] = True
    """Tells the data that one item of the loader is one counted step, and that every rank picks its own rows of it."""

    modality: ClassVar[Literal["text", "images"] | None] = None
    """The only kind of data that the method works on; ``None``: any."""

    in_words: str = "The model was trained by a method that does not say in plain words what it does."
    """What the method does, in plain sentences for the person who signs the audit page."""

    _gradient_evaluations: float = 0.0

    def __init__(
        self,
        network: Network,
        optimizer: OptimizerCallable = lambda p: torch.optim.AdamW(p, lr=1e-5),
        scheduler: LRSchedulerCallable | None = None,
        gradient_clip: float | None = 1.0,
        micro_batch_size: int | None = None,
        stop_at: Literal["holdout"] | None = None,
        max_harm: float | None = None,
        keep: Literal["last", "best"] = "last",
    ) -> None:
        super().__init__()
        self.ending = Ending(stop_at, max_harm, keep)
        if not isinstance(network, Network):
            raise UserError(
                f"{type(self).__name__} was given a {type(network).__name__} as its network: give a recipe such as "
                "CausalLM; a class of your own writes `network: ofmu_pl.Network`, so that options make one."
            )
        check_range(0, above=True, gradient_clip=gradient_clip)
        check_range(1, whole=True, micro_batch_size=micro_batch_size)
        trial = built("optimizer", optimizer, [nn.Parameter(torch.zeros(1, 1))])  # before anything is loaded
        if scheduler is not None:
            built("scheduler", scheduler, trial)
        self.automatic_optimization = False
        self.recipe = network
        self.network: nn.Module | None = None
        self.make_optimizer, self.make_scheduler = optimizer, scheduler
        self.gradient_clip, self.micro_batch_size = gradient_clip, micro_batch_size
        self.record = RunRecord()
        self.replica: Replica | None = None  # no module, so that Lightning neither saves nor moves it

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
    on_bar: tuple[str, ...] = ()
    """Values of every iteration that the progress bar shows beside the losses."""
    moves_parameters: bool = False
    """Whether ``iterate`` moves the parameters before the optimizer does."""

    @property
    def watches_held_out(self) -> bool:
        """Whether the run goes by held-out rows, which tests then compare with."""
        return self.ending.looks

    @property
    def compares(self) -> bool:
        """Whether the method itself compares forget with held-out rows (``reached``)."""
        return False

    def reached(self) -> tuple[bool, dict[str, float]]:
        """Whether forget rows are where they are to end, and what was seen; asked for in every tenth iteration."""
        if self.ending.watch is None:
            return False, {}
        with self.scoring():
            return self.ending.watch.check()

    @property
    def ran_out(self) -> bool:
        """Whether the run ended at its limit of iterations, and a goal that was to end it had not been reached."""
        ended = self.run.stopped or bool(self.run.why)  # `why` alone is left where a stopped run goes on
        return self.ending.stop_at is not None and not ended and self.trainer.global_step == self.trainer.max_steps

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

    works_by_data: bool = False
    """Whether the work of an iteration, if it takes any, follows the size of the data."""

    def before_rehearsal(self) -> None:
        """Take made-up values for what is read of the target before the run: a rehearsal has no weights."""

    def skip_to_late(self) -> None:
        """Stand where every part of an iteration is in use, for a rehearsal of it."""

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
            check_direction(gradient, scalars, self.recipe.uniform_loss(self.trained))
            if self.gradient_clip is not None:
                size = self.clipped_norm(scalars)
                scalars["gradient_clipped"] = float(size > self.gradient_clip)
                if size > self.gradient_clip:
                    scale_(gradient, self.gradient_clip / size)
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
                value = sample_values(part).sum() / size
            if not torch.is_grad_enabled():
                reshard(self.trained)  # as no backward pass does, or parameters moved meanwhile would not be read
            return value

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

    def predict(self, batch: Batch) -> tuple[Predictions, Tensor]:
        """What the network says of rows, at the weights of now, and their targets."""
        with self.run.forward_context():
            said, targets = self.recipe.predict(self.trained, {k: x.to(self.device) for k, x in batch.items()})
        return said.within(self.run.forward_context), targets

    def read(self, batch: Batch) -> tuple[Predictions, Tensor]:
        """The same of rows that are looked at without a gradient, which count as work."""
        self.charge(1 / 3, len(batch["ids"]))
        return self.predict(batch)

    def token_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Losses of tokens, (b, S), and targets of rows that are looked at, a micro-batch at a time."""
        losses: list[Tensor] = []
        targets: list[Tensor] = []
        every = torch.arange(len(batch["ids"]))
        for places in every.split(self.micro_batch_size or len(every)):
            said, labels = self.read({name: x[places] for name, x in batch.items()})
            losses += said.values(token_nll, labels)
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

    def clipped_norm(self, scalars: dict[str, float]) -> float:
        """The norm that ``gradient_clip`` bounds, of what an iteration measured: that of the whole direction."""
        return scalars["gradient_norm"]

    def step_arguments(self, scalars: dict[str, float]) -> dict[str, float]:
        """What the optimizer's step needs beside the gradient, of what the iteration measured."""
        return {}

    def descend(self, gradient: Vector, **given: float) -> None:
        """Take one counted step of the optimizer against ``gradient``; raises where the weights run away."""
        assert self.network is not None, "configure_model has not run"
        descend(self.run, self.network, self.trained, gradient, **given)

    # What Lightning calls ------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Take what a method may know of the run from Lightning's trainer."""
        self.run = Run.of(self.trainer)

    def configure_model(self) -> None:
        """Make the network, once, from the recipe.

        Raises:
            UserError: The method or the network is for data of another modality, the checkpoint to go on from does not
                fit the network, or batches do not divide among ranks.
        """
        if self.network is not None:
            return
        run = self.run
        given = run.data.modality
        for what, wanted in ((type(self).__name__, self.modality), (type(self.recipe).__name__, self.recipe.modality)):
            if wanted not in (None, given):
                raise UserError(
                    f"{what} is for {wanted}, and '{run.data.name}' holds {given}: choose another (docs/choosing.md)."
                )
        if run.ranks.sharded:
            run.data.check_shares(self.streams, run.ranks.size)
        self.network = run.build(self.recipe, exact=self.exact)
        if run.resumed_from:
            require_fit(run.resumed_from, self.network)
        if run.ranks.sharded:
            # The exact engine differentiates the whole copy; optimizer state and checkpoints stay sharded.
            self.replica = Replica(partial(self.recipe.build, run.data, exact=self.exact))

    def configure_optimizers(self) -> tuple[list[Optimizer], list[LRScheduler]]:
        """Make the optimizer of the trainable parameters, then the method's own, and the first one's scheduler, if any.

        Raises:
            UserError: The precision is refused (``preflight.check_precision``), no parameter is trained, or an
                optimizer cannot step here (``descent.check_optimizer``) or refuses the parameters.
        """
        assert self.network is not None, "configure_model has not run"
        check_precision(self.run.precision)
        parameters = trainable(self.network)
        if not parameters:
            raise UserError(
                "The network has no parameter that is trained, as adapters from the hub have none: download them, and "
                "give their folder."
            )
        optimizer = built("optimizer", self.make_optimizer, parameters)
        check_optimizer(optimizer, sharded=self.run.ranks.sharded, device=self.device)
        moments_of_embeddings(optimizer, self.network)
        self.run.optimizers = [optimizer, *self.own_optimizers(optimizer)]
        self.run.scheduler = self.make_scheduler and self.make_scheduler(optimizer)
        return self.run.optimizers, [self.run.scheduler] if self.run.scheduler else []

    def on_fit_start(self) -> None:
        """Print what makes two methods comparable: the data, the batches and the number of iterations."""
        trained = sum(p.numel() for p in trainable(self.trained)) / 1e6
        every = sum(p.numel() for p in self.trained.parameters()) / 1e6
        each = f"{self.run.steps} iterations, each" if self.run.steps >= 0 else "each iteration"
        rank_zero_info(
            f"{type(self).__name__}: {each} with {self.num_batches} batch(es) of {self.run.data.batch_size} "
            f"of {', '.join(self.streams)}; {trained:.2f} of {every:.2f} M parameters trained."
        )
        if self.exact and self.replica is not None:
            size = sum(p.numel() * p.element_size() for p in self.trained.parameters())
            rank_zero_info(f"The exact engine holds a whole copy of the parameters on each rank: {size / 1e9:.3g} GB.")

    def training_step(self, batch: dict[str, list[Batch]], batch_idx: int) -> None:
        """Run one outer iteration: direction, guards, one optimizer step, one scheduler step, logs."""
        number, started = self.trainer.global_step + 1, time.perf_counter()
        scalars = made_to_fit(self, partial(self._uncast_step, batch, number), moves=True)
        if number % LOOK_EVERY == 0:
            scalars |= made_to_fit(self, partial(self.ending.look, self), moves=False)  # the step is taken
        scalars["gradient_evaluations"] = self.gradient_evaluations
        scalars["seconds"] = time.perf_counter() - started
        scalars["peak_memory_GB"] = peak_memory(self.device) / 1e9
        self.record.add(number, scalars)
        every = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every and number % every == 0:
            self.record.log(self.loggers, number, scalars)
        shown = {"L", "L_f", "L_r", "Sim", "grad_Phi", "seconds", *self.on_bar}
        # For the bar and callbacks alone: Lightning keeps an epoch's last values, and would log them again.
        self.log_dict({k: v for k, v in scalars.items() if k in shown}, logger=False, prog_bar=True, batch_size=1)
        self.log_dict({k: v for k, v in scalars.items() if k not in shown}, logger=False, batch_size=1)

    def _uncast_step(self, batch: dict[str, list[Batch]], number: int) -> dict[str, float]:
        """An outer iteration without Lightning's autocast of the whole step: methods cast forward passes alone."""
        mixed = self.run.precision.endswith("-mixed")
        with torch.autocast(self.device.type, enabled=False) if mixed else nullcontext():
            return self.outer_step(batch, number)

    def on_train_end(self) -> None:
        """Take the weights that are kept, where no callback did, and say that a goal was not reached."""
        self.ending.settle(self)
        if self.ran_out:
            rank_zero_warn(
                f"The run ended at its limit of {self.run.step} iterations, and no look had found its goal reached: "
                "allow more (trainer.max_steps; with checkpoints --ckpt_path last goes on from here)."
            )

    def what_was_done(self) -> str:
        """``in_words``, of a method with parts those that the run had: for the audit page, after the run."""
        return self.in_words

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Nothing: the evaluation callback measures."""

    test_step = validation_step

    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add the data's hashes, the work, the run's record, the state of the ending, and the names of all tensors."""
        checkpoint["data_hashes"] = dict(self.run.data.hashes)
        checkpoint["gradient_evaluations"] = float(self.gradient_evaluations)
        checkpoint["record"] = self.record.state_dict()
        checkpoint["ending"] = self.ending.state_dict()
        if "state_dict" in checkpoint:  # what recovery keeps in memory has no shards
            checkpoint[NAMES] = names_in(checkpoint)

    def on_load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Refuse to go on with other data.

        Raises:
            UserError: A split differs from the one the checkpoint was made with.
        """
        require_same_data(self.run.data.hashes, checkpoint.get("data_hashes", {}))
        if self.trainer.state.fn == "fit":
            if "record" in checkpoint:
                self.record.load_state_dict(checkpoint["record"])
            self._gradient_evaluations = checkpoint.get("gradient_evaluations", 0.0)
            self.ending.load_state_dict(checkpoint.get("ending", {}))
            self.go_on_from(checkpoint)

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Take from a checkpoint what training on needs (a run that only measures may read another method's)."""
