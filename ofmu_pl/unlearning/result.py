"""What unlearning leaves: the model, the numbers, and the ways to keep both."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from ofmu_pl.evaluation.account import Account
from ofmu_pl.evaluation.results import write_card
from ofmu_pl.evaluation.table import FinalTable, Metrics, print_table
from ofmu_pl.report import report
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import locked, replacing
from ofmu_pl.support.records.results import PROVENANCE
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

    def table(self) -> None:
        """Print the table that the command line ends with."""
        print_table(*self._ending)

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
