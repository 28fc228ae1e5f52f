"""A run of Lightning's trainer without a word but warnings, what it leaves, and the ways to keep that."""

import shutil
import signal
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.evaluation.account import Account
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.evaluation.results import write_card
from ofmu_pl.evaluation.table import FinalTable, Metrics, print_table
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.report import report
from ofmu_pl.support.errors import UserError, reason
from ofmu_pl.support.files import locked, replacing
from ofmu_pl.support.records.results import PROVENANCE
from ofmu_pl.training.export import model_facts, write_model
from ofmu_pl.training.interrupts import Interrupted, listening
from ofmu_pl.training.noise import SILENT, quiet
from ofmu_pl.training.progress import IterationProgressBar
from ofmu_pl.training.run_folders import LOCK, number, point_latest, versions


@dataclass(eq=False, repr=False)
class Unlearned:
    """What ``unlearn`` gives back.

    Attributes:
        model: The model after the run, which is the object that was given.
        metrics: By name what was measured of it: ``value``, ``n``, ``interval``, ``target`` (the goal) and more.
        before: The same of the model before the run.
        retrained: The same of the retrained model; empty where none was given.
        remark: What the numbers cannot say; ``None``: nothing.
        folder: Folder of the run's files, among them ``results.json``; it is removed together with this object.
    """

    model: nn.Module
    metrics: Metrics
    before: Metrics
    retrained: Metrics
    remark: str | None
    folder: Path
    _ending: FinalTable
    _name: str
    _write: Callable[[Path], None]
    _told: Account | None

    def __repr__(self) -> str:
        return f"<{self._ending.title}: see metrics, table(), report(folder) and save(folder)>"

    def table(self, whole: bool = False) -> None:
        """Print the table that the command line ends with, or one of all metrics."""
        print_table(self._ending, whole)

    def save(self, folder: str | Path) -> Path:
        """Write the model, as a run of the command line leaves it.

        A language model comes with its tokenizer and with adapters merged, for ``from_pretrained``. The model card is
        ``README.md``.

        Args:
            folder: Folder of the model alone; a model that ofmu_pl wrote there is replaced.

        Returns:
            The folder.

        Raises:
            UserError: Something else is there, which would be removed.
        """
        home = Path(folder).resolve()
        if home.is_file() or (home.is_dir() and any(home.iterdir()) and not (home / PROVENANCE).is_file()):
            raise UserError(f"'{home}' is no model that ofmu_pl wrote and would be lost: give a folder of its own.")
        self._write(home)
        if self._told is not None:
            write_card(replace(self._told, model=home))
        return home

    def report(self, folder: str | Path) -> Path:
        """Write the run's files below a folder, and a page of everything that is there.

        The results of several methods that are reported into one folder are compared on its page.

        Args:
            folder: Folder as the command line has them: the run is ``FOLDER/METHOD/version_N``, the page
                ``FOLDER/report/index.html``.

        Returns:
            The page.

        Raises:
            UserError: The folder is a file.
        """
        if Path(folder).is_file():
            raise UserError(f"'{folder}' is a file: give the folder that shall hold the runs.")
        home = Path(folder) / self._name
        with locked(home / LOCK, wait=True):  # so that no other process takes the same number
            n = 1 + max((number(path) or 0 for path in versions(home)), default=-1)
            with replacing(home / f"version_{n}") as temporary:
                shutil.copytree(self.folder, temporary)
                temporary.chmod(home.stat().st_mode)  # the temporary folder is for its owner alone
        point_latest(home / f"version_{n}")
        return report(Path(folder))


def run(
    model: nn.Module,
    module: UnlearningModule,
    data: PairedDataModule,
    evaluation: Evaluation,
    *,
    steps: int,
    seed: int,
    progress: bool,
    accelerator: str,
) -> Unlearned:
    """Train for so many outer iterations, measure before and after, and keep what both say of the model.

    Raises:
        UserError: There is no such device.
        KeyboardInterrupt: The run was interrupted.
    """
    home = Path(tempfile.mkdtemp(prefix="ofmu_pl-"))
    bar = [IterationProgressBar()] if progress else []
    try:
        with quiet(), torch.random.fork_rng(range(torch.cuda.device_count())), listening():
            torch.manual_seed(seed)
            try:
                trainer = pl.Trainer(
                    accelerator=accelerator,
                    devices=1,
                    max_steps=steps,
                    callbacks=[evaluation, *bar],
                    default_root_dir=home,
                    enable_progress_bar=progress,
                    **SILENT,
                )
            except (ValueError, MisconfigurationException) as error:
                why = f"accelerator={accelerator!r} cannot be had here ({reason(error)})"
                raise UserError(f"{why}: give 'auto'.") from error
            trainer.fit(module, datamodule=data)
    except BaseException as error:
        shutil.rmtree(home, ignore_errors=True)
        if isinstance(error, Interrupted) and error.signum == signal.SIGINT:  # a notebook goes on, a program may
            raise KeyboardInterrupt from None
        raise
    facts = model_facts(trainer, module)
    data.trainer = None  # which holds optimizers
    write = partial(write_model, network=module.network, recipe=module.recipe, datamodule=data, facts=facts)
    ending, name = evaluation.ending, type(module).__name__.lower()
    assert ending is not None  # it ends each run
    measured = dict(ending.columns)
    before, retrained = measured.pop("before", {}), measured.pop("retrained", {})
    (after,) = measured.values()
    result = Unlearned(model, after, before, retrained, ending.said, home, ending, name, write, evaluation.told)
    weakref.finalize(result, shutil.rmtree, home, ignore_errors=True)
    return result
