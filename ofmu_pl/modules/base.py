"""The base of every method: one ``training_step`` is one outer iteration and one counted optimizer step."""

from __future__ import annotations

import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from ofmu_pl.core.derivatives import Loss, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.ranks import ALONE
from ofmu_pl.core.vectors import Vector
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import DivergedError, UserError, check_range
from ofmu_pl.training.checkpoints import NAMES, names_in, require_fit, require_same_data
from ofmu_pl.training.descent import built, check_direction, check_optimizer, descend, diverged
from ofmu_pl.training.parallel import Replica, check_rows, ranks_of, shard
from ofmu_pl.training.record import Record
from ofmu_pl.training.recovery import Recovery


class UnlearningModule(pl.LightningModule, ABC):
    """Manual optimization with the counting, clipping, guarding and logging that all methods share.

    A subclass turns a macro-batch into a descent direction in ``iterate``; everything else happens here. The network
    is kept in eval mode (dropout off, frozen statistics): unlearning differentiates a function, not a distribution.

    Args:
        network: Recipe of the network to train.
        optimizer: Takes the parameters; the paper's experiments use AdamW at 1e-5. A ``class_path`` in files.
        scheduler: Takes the optimizer and is stepped once an outer iteration; ``null``: constant rate.
        gradient_clip: Largest norm of the gradient that the optimizer gets; ``null``: as it is.
        micro_batch_size: Samples differentiated at a time, with the same result as all at once; ``null``: all. Halved
            by itself where a GPU's memory does not do.
        rollbacks: How often a diverged iteration is taken back, with all further steps halved; where it fails again,
            together with the one or two before it. 0: the run stops. Costs as many copies of the weights and of all
            optimizers' states, three at most, in the host's memory.

    Raises:
        UserError: A number is out of range, or the optimizer or the scheduler refuses its options.

    Example:
        A method of your own, ascent on the forget rows, is a direction from batches.

        >>> class Ascent(UnlearningModule):
        ...     streams, gradient_evaluations = ("forget",), 0.0
        ...     def iterate(self, batch):
        ...         (part,) = batch["forget"]
        ...         up = self.gradient_engine().expand(self.loss(part), order=1)
        ...         return [-g for g in up.gradient], {"L_f": up.value}
        >>> from ofmu_pl import CausalLM
        >>> Ascent(CausalLM("gpt2"), micro_batch_size=8).pairs
        1
    """

    def __init__(
        self,
        network: Network,
        optimizer: OptimizerCallable = lambda p: torch.optim.AdamW(p, lr=1e-5),
        scheduler: LRSchedulerCallable | None = None,
        gradient_clip: float | None = 1.0,
        micro_batch_size: int | None = None,
        rollbacks: int = 0,
    ) -> None:
        super().__init__()
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
        self.iteration, self.epoch_ends = 0, False
        self.ranks = ALONE
        self.recovery = Recovery(rollbacks)
        self.record = Record()
        self._mixed = True
        self._replica: Replica | None = None  # no module, so that Lightning neither saves nor moves it

    takes_whole_iterations: ClassVar[bool] = True
    """For the data: one item of the loader is one counted step, and every rank takes its rows of it by itself."""

    needs: ClassVar[Literal["text", "images"] | None] = None
    """The only data that the method works on; ``None``: any."""

    iteration: int
    """The present outer iteration, from 1."""
    epoch_ends: bool
    """Whether it is the last of its epoch."""

    moves_parameters: ClassVar[bool] = False
    """Whether ``iterate`` moves the parameters before the optimizer does."""

    # What a subclass says ------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def streams(self) -> tuple[str, ...]:
        """The splits it draws batches from, the first of which sets the length of an epoch."""

    @property
    def unlearns(self) -> bool:
        """Whether the method makes a model forget (and so is judged against a retrained one)."""
        return True

    @property
    def pairs(self) -> int:
        """Batches of each stream an outer iteration uses."""
        return 1

    @property
    def period(self) -> int:
        """Outer iterations after which the work of one repeats."""
        return 1

    @property
    def exact(self) -> bool:
        """Whether the network must be differentiable three times by autograd."""
        return False

    @property
    @abstractmethod
    def gradient_evaluations(self) -> float:
        """Work so far, in gradients of one batch's loss."""

    @abstractmethod
    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """One outer iteration up to the optimizer's step.

        Args:
            batch: ``pairs`` batches for each of ``streams``.

        Returns:
            The gradient to descend, and scalars to log (the retain loss, if there is one, as ``L_r``).
        """

    # Lightning's hooks ---------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        """Make the network, once, from the recipe."""
        if self.network is not None:
            return
        holds = self._data.holds
        for what, wanted in ((type(self).__name__, self.needs), (type(self.recipe).__name__, self.recipe.reads)):
            if wanted not in (None, holds):
                raise UserError(
                    f"{what} is for {wanted}, and '{self._data.name}' holds {holds}: choose another method, network or "
                    "data (README: Other methods, other data; Images)."
                )
        self.network = self.recipe.build(self._data, exact=self.exact)
        if self.trainer.ckpt_path:
            require_fit(Path(self.trainer.ckpt_path), self.network)
        self.ranks = ranks_of(self.trainer.strategy)
        if self.ranks.sharded:
            check_rows(self._data, self.streams, self.ranks)
            shard(self.network, self.trainer.strategy)
            # The exact engine differentiates the whole copy; optimizer state and checkpoints stay sharded.
            build = partial(self.recipe.build, self._data, exact=self.exact)
            self._replica = Replica(build if self.exact else lambda: build().eval())

    def configure_optimizers(self) -> tuple[list[Any], list[Any]]:
        """The optimizer over the trainable parameters, and its scheduler if there is one.

        Raises:
            UserError: One that cannot step here (``descent.check_optimizer``) or not on these parameters.
        """
        assert self.network is not None, "configure_model has not run"
        optimizer = built("optimizer", self.make_optimizer, trainable(self.network))
        check_optimizer(optimizer, sharded=self.ranks.sharded, device=self.device)
        return [optimizer], [] if self.make_scheduler is None else [self.make_scheduler(optimizer)]

    def on_fit_start(self) -> None:
        """Say what is about to be compared: two methods are comparable under the same data, batch and steps."""
        parameters = list(self.trained.parameters())
        counts = [sum(p.numel() for p in ps) / 1e6 for ps in (trainable(self.trained), parameters)]
        most = self.trainer.max_steps
        each = f"{most} iterations, each" if most >= 0 else "each iteration"
        rank_zero_info(
            f"{type(self).__name__}: {each} with {self.pairs} batch(es) of {self._data.batch_size} "
            f"of {', '.join(self.streams)}; {counts[0]:.2f} of {counts[1]:.2f} M parameters trained."
        )

    def training_step(self, batch: dict[str, list[Batch]], batch_idx: int) -> None:
        """One outer iteration: direction, guards, one optimizer step, one scheduler step, logs."""
        number = self.trainer.global_step + 1
        with self.no_autocast():
            attempt = partial(self._attempt, number, batch, bool(self.trainer.is_last_batch))
            made = self.recovery.run(self, number, attempt)
        if min(made) < number:
            self.record.back_to(min(made) - 1, self.loggers)
        every = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        for k, scalars in sorted(made.items()):
            self.record.add(k, scalars)
            if every and k % every == 0:
                self.record.log(self.loggers, k, scalars)
        shown = {"L", "L_f", "L_r", "Sim", "grad_Phi", "rho", "seconds"}
        # For the bar and callbacks alone: Lightning keeps an epoch's last values, and would log them again.
        self.log_dict({k: v for k, v in scalars.items() if k in shown}, logger=False, prog_bar=True, batch_size=1)
        self.log_dict({k: v for k, v in scalars.items() if k not in shown}, logger=False, batch_size=1)

    def _attempt(self, number: int, batch: dict[str, list[Batch]], epoch_ends: bool) -> dict[str, float]:
        """Iteration ``number``, for the first time or once more after it was taken back; its scalars."""
        started = time.perf_counter()
        self.iteration, self.epoch_ends = number, epoch_ends
        if self.exact:
            self.whole_network()
        elif self._replica is not None:
            self._replica.rest()
        try:
            gradient, scalars = self.iterate(batch)
        except ZeroDivisionError as error:
            raise self.diverged("a gradient vanished, so the similarity does not exist") from error
        check_direction(self, gradient, scalars)
        self.descend(gradient)
        scalars["gradient_evaluations"] = self.gradient_evaluations
        scalars["seconds"] = time.perf_counter() - started
        scalars["peak_memory_GB"] = peak_memory(self.device) / 1e9
        return scalars

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Nothing: the evaluation callback measures."""

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Nothing: the evaluation callback measures."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the hashes of the data that the weights have seen, the run's record, and the names of all tensors."""
        checkpoint["data_hashes"] = dict(self._data.hashes)
        checkpoint["step_scale"] = self.recovery.step_scale
        checkpoint["record"] = self.record.state_dict()
        if "state_dict" in checkpoint:  # what recovery keeps in memory has no shards
            checkpoint[NAMES] = names_in(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to go on with other data.

        Raises:
            UserError: A split differs from the one the checkpoint was made with.
        """
        require_same_data(self._data.hashes, checkpoint.get("data_hashes", {}))
        self.recovery.step_scale = checkpoint.get("step_scale", 1.0)
        if self.trainer.state.fn == "fit":
            if "record" in checkpoint:
                self.record.load_state_dict(checkpoint["record"])
            self.go_on_from(checkpoint)

    def go_on_from(self, checkpoint: dict[str, Any]) -> None:
        """Take from a checkpoint what the method needs to train on; who only measures may have another method's."""

    # Helpers of subclasses -----------------------------------------------------------------------------------------

    @property
    def every_optimizer(self) -> list[Any]:
        """Lightning's wrappers of them: first that of ``descend``, then those that ``iterate`` steps uncounted."""
        optimizers = self.optimizers()
        return optimizers if isinstance(optimizers, list) else [optimizers]

    @property
    def _data(self) -> Any:
        """The run's data module, which Lightning's types do not know of."""
        return self.trainer.datamodule  # type: ignore[attr-defined]

    @property
    def trained(self) -> nn.Module:
        """The network, once it is made."""
        assert self.network is not None, "configure_model has not run"
        return self._replica.network if self._replica and self.exact else self.network

    def mean(self, batch: Batch, sample_values: Callable[[Batch], Tensor]) -> Loss:
        """The batch's mean of a value of each sample, as one term a micro-batch.

        Args:
            batch: One batch of a stream.
            sample_values: From a micro-batch of b samples to (b,) values.
        """

        def term(part: Batch, size: int) -> Tensor:
            with self._forward_context():
                return sample_values(part).sum() / size

        size = len(next(iter(batch.values())))
        mine = self.ranks.share(batch)
        if len(next(iter(mine.values()))) == 0:
            return []
        parts = self.recipe.split(mine, self.micro_batch_size)
        return [partial(term, part, size) for part in parts]

    def _forward_context(self) -> AbstractContextManager[None]:
        return self.trainer.precision_plugin.forward_context() if self._mixed else nullcontext()

    def no_autocast(self) -> AbstractContextManager[Any]:
        """Lightning casts the whole step; ``mean`` turns it on again around forward passes alone."""
        mixed = str(self.trainer.precision).endswith("-mixed")
        return torch.autocast(self.device.type, enabled=False) if mixed else nullcontext()

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """In which forward passes are not autocast, whatever the run's precision."""
        self._mixed = False
        try:
            yield
        finally:
            self._mixed = True

    def loss(self, batch: Batch, transform: Callable[[Tensor], Tensor] = lambda losses: losses) -> Loss:
        """The batch's mean loss, each sample's first transformed, (b,) to (b,)."""
        return self.mean(batch, lambda part: transform(self.recipe.sample_losses(self.trained, part)))

    def gradient_engine(self) -> FiniteDifference:
        """Plain gradients of the trainable parameters, which every kernel, checkpointing and sharding supports."""
        return FiniteDifference(trainable(self.trained), ranks=self.ranks)

    def whole_network(self) -> nn.Module:
        """The network, or where ranks hold shards of it a whole copy on each (takes all ranks), to look at."""
        assert self.network is not None, "configure_model has not run"
        return self.network if self._replica is None else self._replica.of(self.network, self.device)

    def weights_changed(self) -> None:
        """Whole copies of the network are out of date."""
        if self._replica is not None:
            self._replica.stale = True

    @property
    def remedy(self) -> str:
        """What to try after a divergence."""
        return "lower the learning rate or set --model.gradient_clip"

    def diverged(self, what: str) -> DivergedError:
        """The error that stops the run in the present iteration and names the last checkpoint before the trouble."""
        return diverged(self, self.iteration, what)

    def descend(self, gradient: Vector) -> None:
        """One counted step of the optimizer against ``gradient``, taken back by an error if the weights run away."""
        descend(self, gradient)


def peak_memory(device: torch.device) -> float:
    """Peak memory of this process so far, in bytes: allocated on the GPU, or resident on the CPU."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
