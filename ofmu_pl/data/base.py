"""Forget and retain batches for a method, evaluation sets for scores, and content hashes of both."""

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Sized
from typing import Any, ClassVar, Literal, Self

import lightning.pytorch as pl
import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from ofmu_pl.data.encoded import Lengths
from ofmu_pl.data.sampler import EpochFrom, Item, ResumableSampler, batch_indices
from ofmu_pl.support.errors import MAX_SEED, UserError, check_range
from ofmu_pl.support.sets import REQUEST

ALTERNATIVE = "alternative"  # the stream of other answers to the forget rows' questions, row for row
INSTEAD = {"forget_rows": "forget_where", "forget_where": "forget_rows"}
"""Arguments that name the rows to forget, each with the one whose place it takes where another request has it."""


class PairedDataModule(pl.LightningDataModule, ABC):
    """Data with a forget and a retain split.

    One item of the training loader is everything that one outer iteration needs: ``num_batches`` batches of each of
    the ``streams``, the j-th batch of a stream being a function of (seed, j) alone:

        {"forget": [batch, ...], "retain": [batch, ...]}

    A batch of B samples has ``ids``, (B,), positions in the split; of texts ``input_ids``, ``attention_mask`` and
    ``labels``, (B, S), padded on the right, with -100 where there is no loss, not shifted; of images ``images``,
    (B, C, H, W) in [0, 1], not normalised, and ``labels``, (B,). Any LightningModule can be trained on it, by any
    trainer (docs/python.md).

    Args:
        batch_size: Samples per batch (paper: 32).
        streams: Splits to draw from, ``forget``, ``retain``, ``full`` or ``alternative``; the first sets
            the length of an epoch, one pass over it with one batch an iteration. The command line takes them from
            the method.
        num_batches: Batches of each stream in one iteration; taken from the method likewise.
        seed: Seed of the order of batches; follows --seed_everything.
        other_requests: Requests beside this one, by number, each as the arguments that name its rows: no row of theirs
            is retained, and each is an evaluation set, ``request_NN``. The command ``requests`` sets it.

    Attributes:
        splits: The splits by name (``forget``, ``retain``, ``full``), after ``setup``; each has a length.
        evaluation_sets: The sets that scores are computed on, by name.
        hashes: Content hash of each split and evaluation set.
        lengths: For text, by split and evaluation set (``NAME_eval``): how many rows there are, how many of them are
            cut, and how long the longest is.

    Example:
        The rows of a batch depend on the seed, the stream and the batch's number alone.

        >>> from ofmu_pl import Authors
        >>> one, two = (Authors(authors=4, forget_authors=1, batch_size=2, seed=7) for _ in range(2))
        >>> for data in (one, two):
        ...     data.setup()
        >>> one.iteration(5)["forget"][0]["ids"].equal(two.iteration(5)["forget"][0]["ids"])
        True
    """

    name: str
    modality: ClassVar[Literal["text", "images"]]
    """The kind of data: networks, methods and evaluations say which kind they are for."""

    def __init__(
        self,
        batch_size: int = 32,
        streams: tuple[str, ...] = ("forget", "retain"),
        num_batches: int = 1,
        seed: int = 0,
        other_requests: dict[int, dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self.other_requests = other_requests or {}
        check_range(1, whole=True, batch_size=batch_size, num_batches=num_batches)
        check_range(0, MAX_SEED, whole=True, seed=seed)
        self.batch_size, self.streams, self.num_batches, self.seed = batch_size, tuple(streams), num_batches, seed
        self.splits: dict[str, Any] = {}
        self.evaluation_sets: dict[str, Any] = {}
        self.hashes: dict[str, str] = {}
        self.lengths: dict[str, Lengths] = {}

    @abstractmethod
    def collate(self, stream: str, index: list[int], number: int) -> dict[str, Tensor]:
        """Make the stream's ``number``-th batch, of the items at these positions of a split (its ``ids``)."""

    def plain(self, stream: str, index: list[int]) -> dict[str, Tensor]:
        """The items at these positions of a split as they are, without what ``collate`` draws for training."""
        return self.collate(stream, index, 0)

    def kinds_of(self, stream: str, rows: Sequence[int]) -> list[np.ndarray] | None:
        """Kinds of the tokens of some rows of a split (``data.guessable``); ``None``: there is one kind."""
        return None

    def others(self) -> dict[str, Self]:
        """This data as each of the other requests would have it, not set up, by the name of its evaluation set."""
        found = {}
        for number, arguments in self.other_requests.items():
            own = {"trainer": None, "other_requests": {}, "streams": ("forget", "retain"), **arguments}
            for argument in arguments:
                if not hasattr(self, argument):
                    raise UserError(
                        f"Request {number} names its rows by '{argument}', which is no argument of "
                        f"{type(self).__name__}: mend its name."
                    )
                if argument in INSTEAD:
                    own.setdefault(INSTEAD[argument], None)
            other = found[f"{REQUEST}{number:02}"] = copy.copy(self)
            vars(other).update(own)
        return found

    @property
    def never_seen(self) -> str | None:
        """The split of rows like those to forget that no model has been trained on; ``None``: there is none."""
        return None

    @property
    def why_no_never_seen(self) -> str:
        """Why there is none, as the beginning of a sentence."""
        return "There are no held-out rows (give some as `data.holdout` if there are any)"

    @abstractmethod
    def blank(self) -> None:
        """Stand in for ``setup`` where sizes matter and contents do not: every split is one batch of the largest rows.

        Nothing is read, unless only the data themselves tell their sizes.
        """

    @property
    def facts(self) -> dict[str, object]:
        """What else two runs must share for their data to be the same, for ``provenance``."""
        return {}

    @property
    def remark(self) -> str | None:
        """A sentence on the parts of rows that no method and no metric sees; ``None``: they see everything."""
        return None

    def require(self, splits: Mapping[str, Sized]) -> None:
        """Refuse splits from which no batch can be drawn."""
        for split in ("forget", "retain", *self.streams):
            if split not in splits:
                raise UserError(f"The data '{self.name}' has no split '{split}': choose from {', '.join(splits)}.")
            if not len(splits[split]):
                raise UserError(f"The {split} split of '{self.name}' is empty: point the data at files that hold rows.")

    def check_shares(self, streams: tuple[str, ...], ranks: int) -> None:
        """Refuse batches that ranks cannot share evenly."""
        for stream in streams:
            rows = min(self.batch_size, len(self.splits[stream]))
            if rows % ranks:
                raise UserError(
                    f"A batch of {rows} {stream} rows does not divide among {ranks} ranks: set `data.batch_size` to a "
                    f"multiple of {ranks} that is not more than the split has rows."
                )

    @property
    def iterations_per_epoch(self) -> int:
        """The number of iterations of one pass over the first stream."""
        return -(-len(self.splits[self.streams[0]]) // self.batch_size)

    def iteration(self, k: int) -> dict[str, list[dict[str, Tensor]]]:
        """Everything that outer iteration ``k`` needs: ``num_batches`` collated batches of each stream."""
        numbers = range(k * self.num_batches, (k + 1) * self.num_batches)
        batches: dict[str, list[dict[str, Tensor]]] = {stream: [] for stream in self.streams}
        for stream, made in batches.items():
            order = "forget" if stream == ALTERNATIVE else stream  # answers to the questions of the batch beside it
            for number in numbers:
                index = batch_indices(len(self.splits[stream]), self.batch_size, self.seed, order, number)
                made.append(self.collate(stream, index.tolist(), number))
        return batches

    @property
    def _ours(self) -> bool:
        """Whether the module in training counts one optimizer step per iteration and shares rows among ranks itself."""
        return bool(self.trainer and getattr(self.trainer.lightning_module, "takes_whole_iterations", False))

    def _left(self) -> range:
        """The epoch's iterations from the present one on; another study's module counts the batches that have begun."""
        n = self.iterations_per_epoch
        if self.trainer is None or self._ours:
            k = 0 if self.trainer is None else self.trainer.global_step
            return range(k, (k // n + 1) * n)
        loop = self.trainer.fit_loop.epoch_loop
        begun = loop.batch_idx + 1  # in this epoch, which `limit_train_batches` may end early
        return range(loop.total_batch_idx + 1, loop.total_batch_idx + 1 + n - begun)

    def _share(self, k: int) -> dict[str, list[dict[str, Tensor]]]:
        """This rank's rows of iteration ``k``: every R-th of R ranks, the same number on each."""
        rank, ranks = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        self.check_shares(self.streams, ranks)
        found: dict[str, list[dict[str, Tensor]]] = {}
        for stream, batches in self.iteration(k).items():
            for batch in batches:
                found.setdefault(stream, []).append({name: x[rank::ranks] for name, x in batch.items()})
        return found

    def train_dataloader(self) -> DataLoader[Item]:
        """Iterations from the trainer's present one to the end of its epoch.

        Our modules get each of them whole on every rank. With any other module ranks share the rows of each batch,
        whatever the trainer's ``use_distributed_sampler``, and ``accumulate_grad_batches`` accumulates iterations.
        """
        numbers, sampler = range(sys.maxsize), EpochFrom(self.iterations_per_epoch, self._left)
        make = self.iteration if self._ours else self._share
        return ResumableSampler(numbers, batch_size=None, sampler=sampler, collate_fn=make)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader[Item] | list[DataLoader[Item]]:
        """For another study's module, loaders of the ``forget`` rows and of the ``retain`` rows.

        There are two, in this order (``dataloader_idx`` 0 and 1): every row once, in order, collated as for training.
        Our modules get one empty step, so that ``validate`` runs; the evaluation callback reads ``evaluation_sets``.
        """
        if self._ours:
            return DataLoader([{}], batch_size=None)  # type: ignore[arg-type]
        return [self._one_pass("forget"), self._one_pass("retain")]

    test_dataloader = val_dataloader

    def _one_pass(self, split: str) -> DataLoader[Item]:
        rows = range(len(self.splits[split]))
        starts = rows[:: self.batch_size]

        def make(number: int) -> Item:
            return self.collate(split, list(rows[starts[number] :][: self.batch_size]), number)

        return DataLoader(range(len(starts)), batch_size=None, collate_fn=make)  # type: ignore[arg-type]


def data_of(trainer: pl.Trainer) -> Any:
    """The run's data module, which Lightning's types do not know of."""
    return trainer.datamodule  # type: ignore[attr-defined]
