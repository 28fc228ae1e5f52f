"""What a dry run has tried, in order, and where it ended."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ofmu_pl.support.errors import UserError

STEPS = ("data", "ranks", "model", "method", "iteration", "checkpoint", "evaluation", "export")
"""What is tried, in this order."""
BLIND = (
    "Not seen: numbers (divergence, quality), memory (plan says), GPU kernels and their types (bitsandbytes' 4 bits, "
    "flash_attention_2), links between ranks, loggers and further callbacks, metrics, files that are written, the "
    "retrained model, weights and what else is not on this machine."
)
"""What no dry run can see."""


@dataclass
class Step:
    """One thing that was tried.

    Attributes:
        what: Its name, one of ``STEPS``.
        told: What was found on the way.
        fault: The sentence that says what is wrong; empty: nothing.
    """

    what: str
    told: str = ""
    fault: str = ""


class Course:
    """The steps of a dry run, up to the first fault.

    Attributes:
        steps: Those that were begun.

    Example:
        >>> course = Course()
        >>> with course.watched():
        ...     course.begin("data", "Digits")
        ...     raise UserError("The forget split is empty: name other classes.")
        >>> course.fault
        'The forget split is empty: name other classes.'
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def begin(self, what: str, told: str = "") -> None:
        """Note that a step begins, so that the one before it went well."""
        self.steps.append(Step(what, told))

    def tell(self, told: str) -> None:
        """Say what the present step has found."""
        self.steps[-1].told = told

    @property
    def fault(self) -> str:
        """The sentence of the step that failed; empty: none did."""
        return self.steps[-1].fault if self.steps else ""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A context whose error, of whatever kind, ends the present step."""
        try:
            yield
        except UserError as error:
            self.steps[-1].fault = str(error)
        except Exception as error:  # whatever torch, transformers or Lightning raise would end the run, too
            frame = traceback.extract_tb(error.__traceback__)[-1]
            said = " ".join((str(error).strip() or "no reason given").splitlines()[0].split()).rstrip(".")
            place = f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno}"
            self.steps[-1].fault = f"{type(error).__name__} in {place} ({said:.300}): mend what this step is made of."

    def show(self, console: Console) -> None:
        """Print the steps as a table, those that were not reached too, and what a dry run is blind to."""
        table = Table(title="Dry run: one iteration without weights", title_justify="left")
        for column in ("tried", "", "what"):
            table.add_column(column)
        begun = {step.what: step for step in self.steps}
        for what in STEPS:
            step = begun.get(what)
            verdict = "not tried" if step is None else "FAULT" if step.fault else "ok"
            table.add_row(what, verdict, "" if step is None else step.fault or step.told)
        console.print(table, markup=False)
        console.print(BLIND, markup=False)
