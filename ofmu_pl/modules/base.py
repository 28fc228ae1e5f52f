"""Methods as LightningModules: one ``training_step`` is one outer iteration and one counted optimizer step."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.optim import Optimizer

from ofmu_pl.core.derivatives import Loss, running_statistics, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.preflight import check_precision
from ofmu_pl.core.vectors import Vector, scale_
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.training.checkpoints import NAMES, names_in, require_fit, require_same_data
from ofmu_pl.training.descent import Runaway, built, check_direction, check_optimizer, descend, diverged
from ofmu_pl.training.parallel import Replica, check_rows
from ofmu_pl.training.record import Record, peak_memory
from ofmu_pl.training.recovery import halved, may_run_out, restore, state_of
from ofmu_pl.training.run import Run


class UnlearningModule(pl.LightningModule, ABC):
    """Manual optimization with the counting, clipping, guarding and logging that all methods share.

    A subclass turns the batches of an iteration into a descent direction in ``iterate``; everything else happens here.
    The network is kept in eval mode (dropout off, frozen statistics):
    unlearning differentiates a function, not a distribution.

    Args:
        network: Recipe of the network to train.
        optimizer: Makes the optimizer of the parameters (the paper's experiments: AdamW at 1e-5); a ``class_path`` in
            files.
        scheduler: Makes the scheduler of the optimizer, stepped once per outer iteration; ``null``: constant rate.
        gradient_clip: Largest norm of the gradient that the optimizer gets; ``null``: as it is.
        micro_batch_size: Samples differentiated at a time, with the same result as all at once; ``null``: all. It is
            halved automatically where a GPU's memory does not suffice.

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

    moves_parameters: ClassVar[bool] = False
    """Whether ``iterate`` moves the parameters before the optimizer does."""

    in_words: str = "The model was trained by a method that does not say in plain words what it does."
    """What the method did, in two sentences for people who do not know the field, for the page that they sign."""

    run: Run

    def __init__(
        self,
        network: Network,
        optimizer: OptimizerCallable = lambda p: torch.optim.AdamW(p, lr=1e-5),
        scheduler: LRSchedulerCallable | None = None,
        gradient_clip: float | None = 1.0,
        micro_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(network, Network):
            raise UserError(
                f"{type(self).__name__} was given a {type(network).__name__} as its network: give a recipe such as "
                "CausalLM; a class of your own writes `network: ofmu_pl.Network`, so that options make one."
            )
        check_range(0, above=True, gradient_clip=gradient_clip)
        check_range(1, micro_batch_size=micro_batch_size)
        trial = built("optimizer", optimizer, [nn.Parameter(torch.zeros(1, 1))])  # before anything is loaded
        if scheduler is not None:
            built("scheduler", scheduler, trial)
        self.automatic_optimization = False
        self.recipe = network
        self.network: nn.Module | None = None
        self.make_optimizer, self.make_scheduler = optimizer, scheduler
        self.gradient_clip, self.micro_batch_size = gradient_clip, micro_batch_size
        self.record = Record()
        self.replica: Replica | None = None  # no module, so that Lightning neither saves nor moves it
        self._gradient_evaluations = 0.0

    # Lightning's hooks ---------------------------------------------------------------------------------------------

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
                    f"{what} is for {wanted}, and '{run.data.name}' holds {given}: choose another method, network or "
                    "data (docs/choosing.md)."
                )
        self.network = self.recipe.build(run.data, exact=self.exact)
        if run.resumed_from:
            require_fit(run.resumed_from, self.network)
        if run.ranks.sharded:
            check_rows(run.data, self.streams, run.ranks)
        if run.shard(self.network):
            # The exact engine differentiates the whole copy; optimizer state and checkpoints stay sharded.
            build = partial(self.recipe.build, run.data, exact=self.exact)
            self.replica = Replica(build if self.exact else lambda: build().eval())

    def configure_optimizers(self) -> tuple[list[Any], list[Any]]:
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
                "The network has no parameter that is trained, as a folder of adapters (adapter_config.json) is loaded "
                "with all of them frozen: merge the adapters into their base model first (peft's merge_and_unload and "
                "save_pretrained), and give that folder."
            )
        optimizer = built("optimizer", self.make_optimizer, parameters)
        check_optimizer(optimizer, sharded=self.run.ranks.sharded, device=self.device)
        self.run.optimizers = [optimizer]
        self.run.optimizers = [optimizer, *self.own_optimizers()]
        self.run.scheduler = self.make_scheduler and self.make_scheduler(optimizer)
        return self.run.optimizers, [self.run.scheduler] if self.run.scheduler else []

    def on_fit_start(self) -> None:
        """Print what makes two methods comparable: the data, the batches and the number of iterations."""
        parameters = list(self.trained.parameters())
        counts = [sum(p.numel() for p in ps) / 1e6 for ps in (trainable(self.trained), parameters)]
        each = f"{self.run.steps} iterations, each" if self.run.steps >= 0 else "each iteration"
        rank_zero_info(
            f"{type(self).__name__}: {each} with {self.num_batches} batch(es) of {self.run.data.batch_size} "
            f"of {', '.join(self.streams)}; {counts[0]:.2f} of {counts[1]:.2f} M parameters trained."
        )

    def training_step(self, batch: dict[str, list[Batch]], batch_idx: int) -> None:
        """Run one outer iteration: direction, guards, one optimizer step, one scheduler step, logs."""
        number = self.trainer.global_step + 1
        mixed = self.run.precision.endswith("-mixed")  # Lightning casts the whole step, methods forward passes alone
        scalars: dict[str, float] = {}
        while not scalars:
            start = state_of(self) if may_run_out(self) else None
            try:
                with torch.autocast(self.device.type, enabled=False) if mixed else nullcontext():
                    scalars = self.outer_step(batch, number)
            except torch.OutOfMemoryError as error:
                size = self.micro_batch_size or -(-self.run.data.batch_size // self.run.ranks.size)
                self.micro_batch_size = halved(size, self.run.ranks, error)
            # Here, not above: an error's traceback holds the failed iteration's tensors.
            if not scalars:
                if start is not None:
                    restore(self, start)
                torch.cuda.empty_cache()
        self.record.add(number, scalars)
        every = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every and number % every == 0:
            self.record.log(self.loggers, number, scalars)
        shown = {"L", "L_f", "L_r", "Sim", "grad_Phi", "seconds"} | ({"rho"} if scalars.get("rho") else set())
        # For the bar and callbacks alone: Lightning keeps an epoch's last values, and would log them again.
        self.log_dict({k: v for k, v in scalars.items() if k in shown}, logger=False, prog_bar=True, batch_size=1)
        self.log_dict({k: v for k, v in scalars.items() if k not in shown}, logger=False, batch_size=1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Nothing: the evaluation callback measures."""

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Nothing: the evaluation callback measures."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the hashes of the data that the weights have seen, the work, the run's record, and all tensors' names."""
        checkpoint["data_hashes"] = dict(self.run.data.hashes)
        checkpoint["gradient_evaluations"] = float(self.gradient_evaluations)
        checkpoint["record"] = self.record.state_dict()
        if "state_dict" in checkpoint:  # what recovery keeps in memory has no shards
            checkpoint[NAMES] = names_in(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to go on with other data.

        Raises:
            UserError: A split differs from the one the checkpoint was made with.
        """
        require_same_data(self.run.data.hashes, checkpoint.get("data_hashes", {}))
        if self.trainer.state.fn == "fit":
            if "record" in checkpoint:
                self.record.load_state_dict(checkpoint["record"])
            self._gradient_evaluations = checkpoint.get("gradient_evaluations", 0.0)
            self.go_on_from(checkpoint)

    def go_on_from(self, checkpoint: dict[str, Any]) -> None:
        """Take from a checkpoint what training on needs (a run that only measures may read another method's)."""

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
    def watches_held_out(self) -> bool:
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

    def outer_step(self, batch: dict[str, list[Batch]], number: int) -> dict[str, float]:
        """Run one outer iteration, for the first time or once more on smaller micro-batches.

        Args:
            batch: The batches that ``iterate`` takes.
            number: Number of the iteration in the run, from 1.

        Returns:
            Scalars to log.

        Raises:
            DivergedError: A loss, the gradient or the weights are out of all bounds.
        """
        started = time.perf_counter()
        self.run.step = number
        if self.exact:
            self.whole_network()
        elif self.replica is not None:
            self.replica.rest()
        try:
            gradient, scalars = self.iterate(batch)
            self._share_statistics()
            check_direction(gradient, scalars, self.gradient_clip, self.recipe.uniform_loss(self.trained))
            self.weights_changed()
            self.descend(gradient, **self.step_arguments(scalars))
        except ZeroDivisionError as error:
            what = "a gradient vanished, so the similarity does not exist"
            raise diverged(type(self).__name__, self.run, what, self.remedy) from error
        except Runaway as error:
            raise diverged(type(self).__name__, self.run, str(error), self.remedy) from error
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

    def step_arguments(self, scalars: dict[str, float]) -> dict[str, float]:
        """What the optimizer's step needs beside the gradient, of what the iteration measured."""
        return {}

    def descend(self, gradient: Vector, **given: float) -> None:
        """Take one counted step of the optimizer against ``gradient``; raises where the weights run away."""
        assert self.network is not None, "configure_model has not run"
        descend(self.run, self.network, self.trained, gradient, **given)
