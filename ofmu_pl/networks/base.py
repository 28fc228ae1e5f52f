"""What a method needs to know of a network: how to make it, and what its per-sample losses are."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from torch import Tensor, nn

from ofmu_pl.losses import sample_mean, token_nll
from ofmu_pl.networks.predictions import Predictions
from ofmu_pl.support.errors import UserError

Batch = dict[str, Tensor]


class Network(ABC):
    """A recipe for a network: cheap to construct, so that weights are made only once, where the trainer wants them."""

    path: str | None = None
    tokenizer_source: str | None = None
    adds_adapters: bool = False
    """Whether ``build`` puts adapters on the model, so that the model that must forget is what is below them."""
    starts_from_base: bool = False
    """Whether a run starts from the model below the adapters, which also stays as it is."""
    modality: ClassVar[Literal["text", "images"]]
    """The kind of data that the network reads."""
    in_shards: bool = False
    """Whether no rank held the network whole when it was built, and none needs to when it is saved."""

    def at(self, path: str | None) -> Self:
        """Copy the recipe, with weights from another place, or untrained ones, and a tokenizer that it has."""
        recipe = copy.copy(self)
        recipe.path = path
        return recipe

    def never_trained(self) -> Self:
        """Give the recipe of a network that nobody trains, in types that give bf16-mixed the same numbers."""
        return self

    @property
    def reads_rows(self) -> bool:
        """Whether ranks that hold shards can each read their rows of the network's files."""
        return False

    @abstractmethod
    def build(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the network with float32 parameters.

        Args:
            datamodule: The data that it will see (a random network takes its output size from it).
            exact: Whether it must be differentiable three times by autograd.
        """

    def build_in_shards(self, datamodule: Any, *, exact: bool, cut: Callable[[nn.Module], object]) -> nn.Module:
        """Make what ``build`` makes, with parameters that ``cut`` leaves this rank its share of (takes all ranks).

        Here every rank first makes the whole network on its host.
        """
        network = self.build(datamodule, exact=exact)
        cut(network)
        return network

    @abstractmethod
    def skeleton(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make what ``build`` makes, on the meta device: shapes and types without numbers; no weights are read."""

    @abstractmethod
    def save(self, module: nn.Module, folder: Path, datamodule: Any) -> None:
        """Write the network into an existing folder, from which a recipe with that ``path`` makes it again.

        A network that was built ``in_shards`` is saved by all ranks together, into the first one's folder.
        """

    def check_form(self, dtype: str | None = None, alone: bool = False) -> None:
        """Refuse a form in which ``save`` cannot write: another type, or adapters alone (``CausalLM.save``)."""
        if dtype is not None or alone:
            raise UserError("export.dtype and export.adapters are for language models: leave them out.")

    def become_saved(self, module: nn.Module, dtype: str | None = None, alone: bool = False) -> None:  # noqa: B027
        """Give a network, in place and for good, the weights that ``save`` writes of it; takes all ranks."""

    @abstractmethod
    def logits(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits (B, S, V) and the labels (B, S) that they predict, ``losses.IGNORED`` where there is none."""

    def predict(self, module: nn.Module, batch: Batch) -> tuple[Predictions, Tensor]:
        """What ``logits`` gives, as ``Predictions`` whose logits may be made some at a time, and the labels, (B, S)."""
        logits, targets = self.logits(module, batch)
        return Predictions(logits), targets

    def sample_losses(self, module: nn.Module, batch: Batch) -> Tensor:
        """Mean negative log-likelihood of each sample's labels, (B,), nats."""
        return sample_mean(*self.token_losses(module, batch))

    def token_losses(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Negative log-likelihoods (B, S), nats, 0 where there is no target, and the targets (B, S)."""
        said, targets = self.predict(module, batch)
        return said.values(token_nll, targets), targets

    @abstractmethod
    def split(self, batch: Batch, size: int | None) -> list[Batch]:
        """Cut a batch into micro-batches of at most ``size`` samples (``None``: one)."""

    @abstractmethod
    def uniform_loss(self, module: nn.Module) -> float:
        """Loss of a uniform guess, ln(number of outputs): what a model that knows nothing scores."""

    def statistics(self, module: nn.Module, stream: str) -> AbstractContextManager[None]:
        """A context for training passes over a stream's batches; it decides what BatchNorm's statistics do there."""
        return nullcontext()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A context in which the module is in eval mode."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for m, training in modes:  # parts after the whole
            m.train(training)
